"""Fuse element-wise operators into the convolution that reads their result.

`FuseOps` joins a convolution with what follows it, never with what comes before: a loop nest that
computed its input anew for every use would be slow. The rules of this package copy a padded or
strided input anyway, and compute it once: there, what comes before costs nothing. In a
pre-activation ResNet that is a batch normalization and a ReLU for every unit.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from .apply import SCHEDULED
from .compute import CONTRACTION, TILE
from .winograd import INPUT

__all__ = ["KeepApart", "prologues"]

# Of relax/transform/fuse_ops.cc (OpPatternKind): element-wise operators are fused into a reduction
# that reads them, and nothing is fused into what follows a reduction; what is opaque stays alone.
_REDUCTION, _OPAQUE = 3, 8


@tvm.transform.module_pass(opt_level=0)
class KeepApart:
    """Let nothing be fused with TIR that somebody scheduled, nor with what counts in int32.

    Fusion would take the first for loops that are still to be scheduled, and cannot join the second
    to the buffers of Relax, which count in int64.
    """

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                shapes = [getattr(parameter.ty, "shape", ()) for parameter in func.params]
                narrow = any(str(size.ty) != "int64" for shape in shapes for size in shape)
                if narrow or func.attrs.get(SCHEDULED, False):
                    mod[var] = func.with_attr("op_pattern", _OPAQUE)
        return mod


@tvm.transform.module_pass(opt_level=0)
class _MarkContractions:
    """Call every function with a contraction a reduction."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        for var, func in mod.functions_items():
            if not isinstance(func, tirx.PrimFunc):
                continue
            names = _blocks(func)
            if CONTRACTION in names:
                mod[var] = func.with_attr("op_pattern", _REDUCTION)
            elif INPUT[0] in names:  # its result is read many times, but computed once
                mod[var] = func.with_attr("op_pattern", _OPAQUE)
        return mod


def _blocks(func: tirx.PrimFunc) -> list[str]:
    """List the blocks that this package made."""
    names: list[str] = []

    def visit(block: s_tir.SBlock) -> None:
        if TILE in block.annotations or block.name_hint in INPUT:
            names.append(block.name_hint)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    return names


def prologues() -> list[tvm.transform.Pass]:
    """List the passes: fused functions in, functions that also hold what comes before out."""
    return [
        _MarkContractions(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
