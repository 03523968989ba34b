"""Padding, which upstream imports from ONNX as a loop, back as an operator."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx

from .raising import as_tir, plain, raised

__all__ = ["RaisePads"]


@tvm.transform.module_pass(opt_level=0)
class RaisePads:
    """Turn calls of TIR that pads a tensor with a constant back into ``nn.pad``."""

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return raised(mod, ("pad",), _RaisePads)


@relax.expr_functor.mutator
class _RaisePads(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.ir.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.call_tir" or plain(call.args[0]) != "pad":
            return call
        function, operands = self.mod[call.args[0]], call.args[1]
        if not isinstance(operands, relax.Tuple) or len(operands.fields) != 1:
            return call
        value = operands.fields[0]
        read = _read(function, value.ty, call.ty_args[0])
        if read is None:
            return call
        widths, by = read

        def pad(x: relax.Expr) -> relax.Expr:
            return relax.op.nn.pad(x, widths, "constant", by)

        same = tvm_ffi.structural_equal(function, as_tir(pad, [value], "pad"))
        return pad(value) if same else call


def _read(function: tirx.PrimFunc, given: Any, out: Any) -> tuple[list[int], float] | None:
    """Read widths (before and after, axis by axis) and value from a function that seems to pad."""
    blocks: list[s_tir.SBlock] = []
    values: list[Any] = [0.0]

    def look(call: ir.Call) -> None:
        if getattr(call.op, "name", "") == "prim.if_then_else":
            values.append(getattr(call.args[2], "value", None))

    tvm_ffi.structural_walk(function.body, ((s_tir.SBlock, blocks.append), (ir.Call, look)))
    inner = [block for block in blocks if len(block.reads) == len(block.writes) == 1]
    if len(inner) != 1 or values[-1] is None:
        return None
    source, result = inner[0].reads[0], inner[0].writes[0]
    analyzer, widths = tvm.sym.Analyzer(), []
    for axis, (read, written) in enumerate(zip(source.region, result.region, strict=True)):
        before = analyzer.simplify(written.min - read.min)
        longer = out.shape[axis] - given.shape[axis]
        after = analyzer.simplify(longer - before)
        if not isinstance(before, tirx.IntImm) or not isinstance(after, tirx.IntImm):
            return None
        widths += [int(before), int(after)]
    return widths, float(values[-1])
