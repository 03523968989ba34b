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

from ..ir.graph import key

__all__ = ["PIPELINE"]

#: The name of TVM's lowering pipeline with these passes.
PIPELINE = "tvmlab"
# Bytes of an array: more than the vector registers of a processor have.
_MOST = 4096
# Of tirx/transform.h: an allocation with this mark is not replaced by a call.
_ON_STACK = "disable_lower_builtin"
_QUOTIENTS = tirx.FloorDiv, tirx.FloorMod
# The operator that reads a field of an argument, and the number of the field with a tensor's shape.
_FIELD, _SHAPE = tvm.ir.Op.get("tirx.tvm_struct_get"), 2


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


def _field(value: Any) -> int:
    """Return the number of the field that an expression reads; -1 for another expression."""
    is_field = isinstance(value, tvm.ir.Call) and value.op.same_as(_FIELD)
    return int(value.args[2]) if is_field else -1


@tirx.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _never_by_zero(func: tirx.PrimFunc, mod: tvm.ir.IRModule, ctx: Any) -> tirx.PrimFunc:
    """Divide by at least 1 where a divisor is computed from sizes: it can only be 0 or more."""
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, tuple((kind, found.append) for kind in _QUOTIENTS))
    if all(isinstance(quotient.b, tirx.IntImm) for quotient in found):
        return func
    named: dict[int, Any] = {}

    def name(bind: tirx.Bind) -> None:
        named[key(bind.var)] = bind.value

    tvm_ffi.structural_walk(func.body, (tirx.Bind, name))
    known: dict[int, bool] = {}

    def is_size(var: tirx.Var) -> bool:
        if key(var) not in known:
            known[key(var)] = key(var) in named and of_sizes(named[key(var)])
        return known[key(var)]

    def of_sizes(value: Any) -> bool:
        if isinstance(value, tvm.ir.Call):
            return _field(value) >= 0 and _field(named.get(key(value.args[0]))) == _SHAPE
        used, numbers, negative = list[tirx.Var](), list[tirx.IntImm](), list[Any]()
        kinds: list[Any] = [(tirx.Var, used.append), (tirx.IntImm, numbers.append)]
        # The values of these could be negative.
        kinds += [(kind, negative.append) for kind in (tirx.Sub, tvm.ir.Call, tvm.ir.TensorLoad)]
        tvm_ffi.structural_walk(value, tuple(kinds))
        negative += [number for number in numbers if int(number) < 0]
        return bool(used) and not negative and all(is_size(var) for var in used)

    def safe(quotient: Any) -> Any:
        if not of_sizes(quotient.b):
            return quotient
        one = tirx.const(1, quotient.b.ty.dtype)
        return type(quotient)(quotient.a, tirx.max(quotient.b, one))

    kinds = tuple((kind, safe) for kind in _QUOTIENTS)
    return func.with_body(tvm_ffi.structural_map(func.body, kinds))


def _pipeline() -> tuple[Any, Any, Any]:
    lower, host, device = get_tir_pipeline("s_tir")
    passes = [_never_by_zero, _on_stack]
    return lower, lambda: tvm.transform.Sequential([*passes, host()]), device


register_tir_pipeline(PIPELINE, _pipeline)
