"""Fuse element-wise operators into the convolution that reads their result.

`FuseOps` fuses a convolution with the operators after it, but not with those before it, because a
loop nest that recomputed its input for every use would be slow. The rules of this package copy a
padded or strided input anyway, so an operator before the convolution is computed once, during this
copy. In a pre-activation ResNet this fuses a batch normalization and a ReLU for every unit.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from ..ir.graph import is_call
from .apply import SCHEDULED
from .attention import ATTENTION
from .batches import BATCHES
from .compute import CONTRACTION, TILE
from .winograd import INPUT

__all__ = ["KeepApart", "SizesFirst", "prologues"]

# Of relax/transform/fuse_ops.cc (OpPatternKind): element-wise operators are fused into a reduction
# that reads them; a reduction is not fused into later operators; opaque functions stay alone.
_BROADCAST, _INJECTIVE, _REDUCTION, _OPAQUE = 1, 2, 3, 8
# The first operands of an attention: queries, keys and values.
_COPIED = 3


@tvm.transform.module_pass(opt_level=0)
class KeepApart:
    """Exclude TIR that has a schedule, and TIR with int32 indices, from fusion.

    Fusion would treat the former as unscheduled loops, and cannot join the latter
    to the buffers of Relax, which have int64 indices.
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


@relax.transform.dataflowblock_pass(opt_level=0)
class SizesFirst:
    """Move calls after the `match_cast` that defines their sizes, because `FuseOps` does not."""

    def transform_dataflowblock(
        self, block: relax.DataflowBlock, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.DataflowBlock:
        """Rewrite a block, called by TVM's pass infrastructure."""
        casts = [one for one in block.bindings if isinstance(one, relax.MatchCast)]
        if not casts:
            return block
        undefined = {size for one in casts for size in relax.analysis.tir_vars_in_type(one.ty)}
        undefined |= {one.var for one in block.bindings}
        waiting = [(one, set(relax.analysis.free_vars(one.value))) for one in block.bindings]
        made = []
        while waiting:
            # The first one that needs nothing undefined; an input's sizes are defined elsewhere.
            ready = (i for i, (_, names) in enumerate(waiting) if not names & undefined)
            one, _ = waiting.pop(next(ready, 0))
            undefined.discard(one.var)
            if isinstance(one, relax.MatchCast):
                undefined -= set(relax.analysis.tir_vars_in_type(one.ty))
            made.append(one)
        return relax.DataflowBlock(made)


@tvm.transform.module_pass(opt_level=0)
class _MarkContractions:
    """Mark every function with a contraction as a reduction."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        for var, func in mod.functions_items():
            if not isinstance(func, tirx.PrimFunc):
                continue
            names = _blocks(func)
            if {*names} & {ATTENTION, BATCHES, CONTRACTION}:
                mod[var] = func.with_attr("op_pattern", _REDUCTION)
            elif INPUT[0] in names:  # its result is read many times, but computed once
                mod[var] = func.with_attr("op_pattern", _OPAQUE)
        return mod


@tvm.transform.module_pass(opt_level=0)
class _MarkCopied:
    """Mark what computes the operands of an attention, so that it is fused with their copies."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        functions = mod.functions_items()
        attentions = {
            var.name_hint
            for var, func in functions
            if isinstance(func, tirx.PrimFunc) and ATTENTION in _blocks(func)
        }
        for _, func in functions if attentions else ():
            for var in _copied(func, attentions) if isinstance(func, relax.Function) else ():
                if mod[var].attrs.get("op_pattern", _OPAQUE) == _INJECTIVE:
                    mod[var] = mod[var].with_attr("op_pattern", _BROADCAST)
        return mod


def _copied(func: relax.Function, attentions: set[str]) -> list[tvm.ir.GlobalVar]:
    """List the functions whose results an attention copies, number by number."""
    made, found = dict[relax.Var, tvm.ir.GlobalVar](), list[tvm.ir.GlobalVar]()
    for binding in (one for block in func.body.blocks for one in block.bindings):
        if not is_call(binding.value, "relax.call_tir"):
            continue
        made[binding.var], operands = binding.value.args[:2]
        if made[binding.var].name_hint in attentions:
            found += [made[one] for one in operands.fields[:_COPIED] if one in made]
    return found


def _blocks(func: tirx.PrimFunc) -> list[str]:
    """List the blocks of this package's contractions."""
    names: list[str] = []

    def visit(block: s_tir.SBlock) -> None:
        if TILE in block.annotations or block.name_hint in INPUT:
            names.append(block.name_hint)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    return names


def prologues() -> list[tvm.transform.Pass]:
    """List the passes that fuse preceding operators into the contractions' functions."""
    return [
        _MarkContractions(),
        relax.transform.AnnotateTIROpPattern(),
        _MarkCopied(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
