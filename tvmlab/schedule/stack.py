"""Correct loops that TVM lowered: arrays of sums on the heap, and divisions by sizes of 0.

A tile's sums belong on the stack, where LLVM can hold them in registers. TVM allocates arrays of
1,024 bytes and more on the heap (``runtime::kMaxStackAlloca``). LLVM must assume that a prefetch or
a result of the epilogue can overlap with such an array, and writes the sums to it. It replaces an
array on the stack, of any size, by registers.

TVM divides by an open size in loops that do not run if the size is 0. It also computes the sizes of
arrays by such divisions, and moves divisions out of these loops; both would end the process.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.compilation_pipeline import get_tir_pipeline, register_tir_pipeline

from .rebuild import replaced

__all__ = ["PIPELINE"]

#: The name of TVM's lowering pipeline with these passes.
PIPELINE = "tvmlab"
# Bytes of an array: more than the vector registers of a processor have.
_MOST = 4096
# Of tirx/transform.h: an allocation with this mark is not replaced by a call.
_ON_STACK = "disable_lower_builtin"
# The operator that reads a function's argument: here, a size of a tensor.
_ARGUMENT = tvm.ir.Op.get("tirx.tvm_struct_get")


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _on_stack(func: tirx.PrimFunc, mod: tvm.ir.IRModule, ctx: Any) -> tirx.PrimFunc:
    """Mark the arrays of a tile's sums."""

    def mark(made: tirx.AllocBuffer) -> tirx.AllocBuffer:
        buffer = made.buffer
        if not all(isinstance(size, tirx.IntImm) for size in buffer.shape):
            return made
        number = tvm.DataType(str(buffer.dtype))
        size = number.bits * number.lanes // 8 * math.prod(map(int, buffer.shape))
        if buffer.scope() != "global" or not 0 < size <= _MOST:
            return made
        return tirx.AllocBuffer(buffer, {**made.annotations, _ON_STACK: tirx.IntImm("int32", 1)})

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, mark)))


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _never_by_zero(func: tirx.PrimFunc, mod: tvm.ir.IRModule, ctx: Any) -> tirx.PrimFunc:
    """Divide by 1 where a divisor that is computed from sizes is 0."""
    sizes: list[tirx.Var] = []
    named: list[tuple[Any, Any]] = []

    def name(bind: tirx.Bind) -> None:
        if isinstance(bind.value, tvm.ir.Call) and bind.value.op.same_as(_ARGUMENT):
            sizes.append(bind.var)
        else:
            named.append((bind.var, replaced(bind.value, named)))

    def safe(quotient: Any) -> Any:
        divisor, used = replaced(quotient.b, named), list[Any]()
        kinds = ((tirx.Var, used.append), (tvm.ir.TensorLoad, used.append))
        tvm_ffi.structural_walk(divisor, kinds)
        if not used or not all(any(one.same_as(size) for size in sizes) for one in used):
            return quotient
        one = tirx.const(1, quotient.b.ty.dtype)
        return type(quotient)(quotient.a, tirx.Select(quotient.b == 0, one, quotient.b))

    tvm_ffi.structural_walk(func.body, (tirx.Bind, name))
    if not sizes:
        return func
    kinds = tuple((kind, safe) for kind in (tirx.FloorDiv, tirx.FloorMod))
    return func.with_body(tvm_ffi.structural_map(func.body, kinds))


def _pipeline() -> tuple[Any, Any, Any]:
    lower, host, device = get_tir_pipeline("s_tir")
    passes = [_never_by_zero, _on_stack]
    return lower, lambda: tvm.transform.Sequential([*passes, host()]), device


register_tir_pipeline(PIPELINE, _pipeline)
