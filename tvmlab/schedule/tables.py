"""Functions of one 8-bit number by a table of 256 bytes, which stays in four registers.

``vpermi2b`` of AVX-512 VBMI takes 64 bytes at once from 128 of a table. A function takes two of
them and a choice by the highest bit; without the instruction, LLVM loads one byte after the other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from ..qnn.operands import CallOperands
from ..qnn.operator import OPERATORS
from . import loops
from .compute import sizes
from .machine import Machine

__all__ = ["TABLE", "Tables", "looked_up", "tabulated"]

#: The name of the block that looks bytes up in a table.
TABLE = "table"
_LANES = 64
_LLVM = "llvm.x86.avx512.vpermi2var.qi.512"
# Of relax/transform/fuse_ops.cc (OpPatternKind): opaque functions are not fused.
_OPAQUE = 8


def tabulated() -> list[str]:
    """List the operators that are looked up in a table."""
    return [f"relax.qnn.{name}" for name, row in OPERATORS.items() if row.tabulated]


def looked_up(builder: relax.BlockBuilder, call: relax.Call, machine: Machine) -> relax.Expr | None:
    """Legalize a function of 8-bit numbers; None if the processor or the size does not fit."""
    x = call.args[0]
    shape = sizes(x.ty.shape) if isinstance(x.ty.shape, relax.ShapeExpr) else []
    dtype = str(x.ty.dtype)
    whole = shape and all(isinstance(n, int) for n in shape) and shape[-1] % _LANES == 0
    if not machine.permutes_bytes or not whole or dtype not in ("int8", "uint8"):
        return None
    row = OPERATORS[str(call.op.name).removeprefix("relax.qnn.")]
    given = CallOperands(builder, call)
    # In the order of the bits, that is, the negative numbers of int8 last.
    every = np.arange(256).astype("uint8").view(dtype)
    results = row.reference(x=every, **row.known(given, dtype), **given.attributes)

    def table(x: te.Tensor, results: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> Any:
            place = x(*index) if dtype == "uint8" else tirx.reinterpret("uint8", x(*index))
            return results(place.astype("int64"))

        return te.compute(shape, value, name=TABLE)

    attrs = {"op_pattern": _OPAQUE}
    results = relax.const(results.view(dtype), dtype)
    return builder.call_te(
        table, x, results, primfunc_name_hint=f"qnn_{row.name}", primfunc_attrs=attrs
    )


def _chosen(place: Any, parts: list[Any]) -> Any:
    """Take a vector of bytes from the four parts of a table."""
    dtype, many = str(parts[0].ty.dtype), f"int8x{_LANES}"
    place, *signed = (tirx.reinterpret(many, one) for one in (place, *parts))
    pairs = (signed[0], place, signed[1]), (signed[2], place, signed[3])
    low, high = (tirx.call_llvm_pure_intrin(many, _LLVM, *pair) for pair in pairs)
    none = tirx.Broadcast(tirx.const(0, "int8"), _LANES)
    return tirx.reinterpret(dtype, tirx.Select(place < none, high, low))


class Tables(CPUScheduleRule):
    """Schedule the loop nests of `looked_up`."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if `looked_up` did not make it."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        if len(blocks) != 1 or sch.get(blocks[0]).name_hint != TABLE:
            return None
        x, results, y = func.params
        # The schedule primitive `tensorize` does not compare an index that reads a buffer.
        *outer, last = sizes(x.shape)
        at, index = tirx.Var("i", "int64"), list[Any]()
        rest: Any = at
        for size in (last // _LANES, *outer[::-1]):
            rest, place = tirx.floordiv(rest, size), tirx.floormod(rest, size)
            index.insert(0, place)
        first = index.pop() * _LANES
        vector = [*index, tirx.Ramp(first, tirx.const(1, "int64"), _LANES)]
        starts = (tirx.Ramp(tirx.const(n * _LANES, "int64"), tirx.const(1, "int64"), _LANES)
                  for n in range(4))  # fmt: skip
        parts = [tirx.BufferLoad(results, [start]) for start in starts]
        store = tirx.BufferStore(y, _chosen(tirx.BufferLoad(x, vector), parts), vector)
        count = last // _LANES * math.prod(outer)
        many = not isinstance(count, int) or count >= loops.PARALLEL
        kind = tirx.ForKind.PARALLEL if many else tirx.ForKind.SERIAL
        body = tirx.For(at, tirx.const(0, "int64"), tirx.const(count, "int64"), kind, store)
        whole = [[tvm.ir.Range(0, size) for size in one.shape] for one in (x, results, y)]
        regions = [tirx.BufferRegion(*pair) for pair in zip((x, results, y), whole, strict=True)]
        block = s_tir.SBlock([], regions[:2], regions[2:], "root", body)
        return s_tir.Schedule(func.with_body(s_tir.SBlockRealize([], True, block)))
