"""Lower Relax operators to scheduled loops, step by step.

Each step corresponds to a step of the ladder in notebook 02, applied to a whole network:

========== =====================================================================================
fuse       batch normalization is folded; neighbouring operators become one function
parallel   the outer loops of every function are spread over the threads
tile       NHWC; sums stay in a tile of registers, whose channels are vectors
pack       constant weights are stored in the order in which the tiles read them
epilogue   operators fused with a sum are computed in the tile, before it is written
winograd   3x3 convolutions are computed with fewer multiplications, if `Squares.choose` says so
========== =====================================================================================
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic
from tvm.s_tir import dlight
from tvm.s_tir.dlight.base import ScheduleRule

from .apply import LAYOUT, ApplyRules, ApplyTuned, Tuned, found_layouts
from .attention import Attention, JoinAttention
from .batches import Batches
from .contraction import Contraction
from .fusion import KeepApart, SizesFirst, prologues
from .layout import channels_last
from .legalize import legalizations
from .machine import Machine
from .norms import Rows
from .other_rules import Depthwise, ElementWise, Parallel, Reduction
from .staircase import Staircases
from .tables import Tables
from .tile_size import Layouts, operators
from .winograd import WinogradTransform

__all__ = ["STEPS", "fused_passes", "rules", "schedule_passes"]

#: The steps in order; each one includes those before it.
STEPS = ("fuse", "parallel", "tile", "pack", "epilogue", "winograd")


def fused_passes(
    target: tvm.target.Target, step: str = STEPS[-1], layouts: Layouts | None = None
) -> tvm.transform.Pass:
    """Return the passes from Relax operators to fused TIR functions without a schedule."""
    taken = STEPS[: STEPS.index(step) + 1]
    tile = "tile" in taken
    legal = None
    if tile:
        legal = legalizations(
            Machine.of(target), layouts, pack="pack" in taken, winograd="winograd" in taken
        )
    return tvm.transform.Sequential(
        [
            *([channels_last(), Staircases(), JoinAttention()] if tile else []),
            *cpu_generic.library_dispatch_passes(target),
            relax.transform.LegalizeOps(legal),
            KeepApart(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(),
            *(prologues() if "epilogue" in taken else []),
            SizesFirst(),
        ]
    )


def rules(step: str = STEPS[-1]) -> list[ScheduleRule]:
    """List the rules of a step; the first rule that matches a function schedules it."""
    taken = STEPS[: STEPS.index(step) + 1]
    if "tile" in taken:
        return [
            Batches(),
            Attention(),
            Contraction(epilogue="epilogue" in taken),
            Depthwise(),
            WinogradTransform(),
            Rows(),
            Tables(),
            Reduction(),
            dlight.cpu.Reduction(),
            ElementWise(),
            Parallel(),
        ]
    return [Parallel()] if "parallel" in taken else []


def schedule_passes(
    target: tvm.target.Target, step: str = STEPS[-1], tuned: Tuned | None = None
) -> tvm.transform.Pass:
    """Return the passes from Relax operators to scheduled TIR, for a CPU.

    Parameters
    ----------
    target : tvm.target.Target
        Of kind ``llvm``.
    step : str
        The last of the `STEPS` to take.
    tuned : Tuned, optional
        Tuned schedules, which take precedence over those of the rules.

    Returns
    -------
    tvm.transform.Pass
        A pass from Relax with operators to Relax that calls fused, scheduled TIR functions.
    """
    by_rules = ApplyRules(rules(step))
    if tuned is None:
        return tvm.transform.Sequential([fused_passes(target, step), by_rules])
    fused = _FusedByLayouts(target, step, tuned)
    return tvm.transform.Sequential([fused, ApplyTuned(tuned), by_rules])


@tvm.transform.module_pass(opt_level=0)
class _FusedByLayouts:
    """`fused_passes`, twice if the records choose layouts, because fusion determines the tasks."""

    def __init__(self, target: tvm.target.Target, step: str, tuned: Tuned) -> None:
        self.target, self.step, self.tuned = target, step, tuned

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        fused = fused_passes(self.target, self.step)(mod)
        found = found_layouts(fused, self.tuned)
        if not found:
            return fused
        layouts = Layouts(found)
        mod = fused_passes(self.target, self.step, layouts)(mod)
        for var, func in mod.functions_items():
            taken = _taken(func, layouts) if isinstance(func, tirx.PrimFunc) else ""
            if taken:
                mod[var] = func.with_attr(LAYOUT, taken)
        return mod


def _taken(func: tirx.PrimFunc, layouts: Layouts) -> str:
    """Return the tiles that the records choose for the weights of a function; mostly one."""
    tiles = [layouts.taken[one] for one in operators(func) if one in layouts.taken]
    return ", ".join(dict.fromkeys(tiles))
