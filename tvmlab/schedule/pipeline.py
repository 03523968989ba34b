"""From Relax operators to scheduled loops, step by step.

Each step is a rung of the ladder of notebook 02, applied to a whole network:

========== =====================================================================================
fuse       batch normalization is folded; neighbouring operators become one function
parallel   the outer loops of every function are spread over the threads
tile       NHWC; sums stay in a tile of registers, whose channels are vectors
pack       constant weights are stored in the order in which the tiles read them
epilogue   what fusion attached to a sum is computed in the tile, before it is written
winograd   3x3 convolutions are computed with fewer multiplications, where that is quicker
========== =====================================================================================
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as cpu_generic
from tvm.s_tir import dlight

from .apply import ApplyRules
from .contraction import Contraction
from .depthwise import Depthwise
from .elementwise import ElementWise
from .fusion import KeepApart, prologues
from .layout import channels_last
from .legalize import legalizations
from .machine import Machine
from .parallel import Parallel
from .reduction import Reduction
from .staircase import Staircases
from .transform import WinogradTransform

__all__ = ["STEPS", "schedule_passes"]

#: The steps in their order; each one includes those before it.
STEPS = ("fuse", "parallel", "tile", "pack", "epilogue", "winograd")


def schedule_passes(target: tvm.target.Target, step: str = STEPS[-1]) -> tvm.transform.Pass:
    """Make the passes that take Relax operators to scheduled TIR, for a CPU.

    Parameters
    ----------
    target : tvm.target.Target
        Of kind ``llvm``.
    step : str
        The last of the `STEPS` to take.

    Returns
    -------
    tvm.transform.Pass
        Relax of operators in; Relax that calls fused, scheduled TIR functions out.
    """
    taken = STEPS[: STEPS.index(step) + 1]
    tile = "tile" in taken
    legal = None
    if tile:
        legal = legalizations(
            Machine.of(target), pack="pack" in taken, winograd="winograd" in taken
        )
    rules: list[dlight.base.ScheduleRule] = []
    if tile:
        rules = [
            Contraction(epilogue="epilogue" in taken),
            Depthwise(),
            WinogradTransform(),
            Reduction(),
            dlight.cpu.Reduction(),
            ElementWise(),
            Parallel(),
        ]
    elif "parallel" in taken:
        rules = [Parallel()]
    return tvm.transform.Sequential(
        [
            *([channels_last(), Staircases()] if tile else []),
            *cpu_generic.library_dispatch_passes(target),
            relax.transform.LegalizeOps(legal),
            KeepApart(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FoldConstant(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.DeadCodeElimination(),
            *(prologues() if "epilogue" in taken else []),
            *([ApplyRules(rules)] if rules else []),
        ]
    )
