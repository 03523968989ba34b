"""Keep a tile's sums on the stack, where LLVM can hold them in registers.

TVM allocates arrays of 1,024 bytes and more on the heap (``runtime::kMaxStackAlloca``). LLVM must
assume that a prefetch or a result of the epilogue can overlap with such an array, and writes the
sums to it. It replaces an array on the stack, of any size, by registers.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.compilation_pipeline import get_tir_pipeline, register_tir_pipeline

__all__ = ["PIPELINE"]

#: The name of TVM's lowering pipeline with this pass.
PIPELINE = "tvmlab"
# Bytes of an array: more than the vector registers of a processor have.
_MOST = 4096
# Of tirx/transform.h: an allocation with this mark is not replaced by a call.
_ON_STACK = "disable_lower_builtin"


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


def _pipeline() -> tuple[Any, Any, Any]:
    lower, host, device = get_tir_pipeline("s_tir")
    return lower, lambda: tvm.transform.Sequential([_on_stack, host()]), device


register_tir_pipeline(PIPELINE, _pipeline)
