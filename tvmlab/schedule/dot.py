"""Quantized convolutions and matrix products to loop nests over the processor's dot products.

They are `compute.contraction` of integers: packed weights, tiles of int32 sums in registers, and in
the tile what fusion attaches, as for floats. `dot_factors` says what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from ..ir import dialect, windows
from ..qnn.operands import CallOperands
from ..qnn.products import ConvWeights, ZeroPointCorrection
from .compute import (
    Window,
    broadcast_index,
    by,
    contraction,
    depthwise,
    padded,
    round_up,
    sizes,
)
from .dot_factors import Factors
from .dot_sources import source
from .layouts import Layouts
from .machine import Machine
from .tile import OPEN, Tile, pixels_of_a_vector

__all__ = ["dot_legalizations"]

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]

# Of relax/transform/fuse_ops.cc (OpPatternKind): what can be fused anywhere; sums, with which what
# follows them is fused.
_ELEMENTWISE, _OUT_ELEMENTWISE = 0, 4
_NARROW = ("int8", "uint8")


def dot_legalizations(machine: Machine, layouts: Layouts) -> dict[str, Legalization]:
    """Make the legalizations of the quantized operators that the rules for sums serve."""
    return {
        "relax.qnn.conv2d": lambda builder, call: _conv2d(builder, call, machine, layouts),
        "relax.qnn.dense": lambda builder, call: _dense(builder, call, machine, layouts),
        "relax.add": _add,
    }


def _constants(call: relax.Call) -> list[NDArray[Any]] | None:
    """Give weights, zero point and the weights' zero points; None where that cannot be."""
    data, *constants = call.args[:4]
    if not all(isinstance(constant, tvm.ir.GenericConst) for constant in constants):
        return None
    found = [constant.value.numpy() for constant in constants]
    narrow = {str(data.ty.dtype), str(found[0].dtype)} <= set(_NARROW)
    whole = dialect.attributes(call)["out_dtype"] == "int32" and 0 not in sizes(call.ty.shape)
    return found if narrow and whole and found[0].size else None


def _conv2d(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine, layouts: Layouts
) -> relax.Expr | None:
    """Legalize ``qnn.conv2d`` in NHWC with OHWI weights."""
    a, data, shape = dialect.attributes(call), call.args[0], sizes(call.ty.shape)
    written = a["data_layout"], a["kernel_layout"], a["out_layout"] or a["data_layout"]
    known = [*shape[1:], *sizes(data.ty.shape)[1:]]
    found = _constants(call)
    if written != ("NHWC", "OHWI", "NHWC") or found is None:
        return None
    if not all(isinstance(size, int) for size in known):
        return None
    ConvWeights(CallOperands(builder, call), known[-1], shape[3])  # refuses what is none, and warns
    weight, zero, weight_zero = found
    groups, dtype = a["groups"], str(data.ty.dtype)
    if windows.depthwise(known[-1], len(weight), groups):  # the last axis is a multiplier
        weight = weight.transpose(0, 3, 1, 2).reshape(shape[3], *weight.shape[1:3], 1)
    outputs, *taps, inputs = weight.shape
    window = Window(
        taps,
        windows.steps(a["strides"], 2, call.op.name, "strides"),
        [before for before, _ in windows.padding(a["padding"], 2, call.op.name)],
        windows.steps(a["dilation"], 2, call.op.name, "dilation"),
    )
    alone = groups == outputs > 1 and inputs == 1
    factors = Factors.of(dtype, zero, weight, weight_zero, machine, alone=alone)
    if factors is None:
        return None
    if alone:
        return _depthwise(builder, data, factors, window, shape, machine)
    each, read = outputs // groups, source(factors, window, groups)
    operator = (
        f"qnn.conv2d {by(data.ty.shape)} {dtype}, weights {by(weight.shape)} {weight.dtype}, "
        f"{window}, groups {groups}, {factors.dot.name if factors.dot else 'no dot'}"
    )
    ranked = _tiles(shape[1], shape[2], each, read.steps, read.apart, factors, machine)
    tile = layouts.pick(operator, ranked)

    def conv2d(x: te.Tensor, w: te.Tensor, extra: te.Tensor) -> te.Tensor:
        n, height, width, _ = shape
        weight = read.factors.reader(w, tile.channels)
        sums = contraction(
            read.prepared(x, round_up(height, tile.rows), round_up(width, tile.columns)),
            lambda outer, *place: weight(outer[-1], *place),
            read=read.at,
            pixels=(n, groups, height, width),
            taps=read.taps,
            inputs=read.inputs,
            channels=each,
            tile=tile,
            dtype="int32",
            operator=operator,
            dot=factors.dot,
        )
        return te.compute(
            shape,
            lambda b, y, c, o: _sum(sums[b, o // each, y, c, o % each], extra[o]),
            name="crop",
        )

    return _call(builder, conv2d, data, read.factors, groups, tile, "qnn_conv2d")


def _dense(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine, layouts: Layouts
) -> relax.Expr | None:
    """Legalize ``qnn.dense``."""
    data, shape, found = call.args[0], sizes(call.ty.shape), _constants(call)
    if found is None or len(shape) < 2:
        return None
    weight, zero, weight_zero = found
    ZeroPointCorrection.of(CallOperands(builder, call), weight)  # refuses what is none, and warns
    factors = Factors.of(str(data.ty.dtype), zero, weight, weight_zero, machine)
    if factors is None:
        return None
    *batch, rows, outputs = shape
    inputs = weight.shape[1]
    wide = round_up(inputs, factors.depth)
    many = rows if isinstance(rows, int) else OPEN
    steps, apart = wide // factors.depth, wide * factors.bytes
    operator = (
        f"qnn.dense {by(data.ty.shape)} {data.ty.dtype}, weights {by(weight.shape)} "
        f"{weight.dtype}, {factors.dot.name if factors.dot else 'no dot'}"
    )
    tile = layouts.pick(operator, _tiles(1, many, outputs, steps, apart, factors, machine))

    def dense(x: te.Tensor, w: te.Tensor, extra: te.Tensor) -> te.Tensor:
        before, read = [0] * len(shape), factors.reader(w, tile.channels)
        after = [*before[:-2], round_up(rows, tile.columns) - rows, wide - inputs]
        sums = contraction(
            padded(factors.moved(x), before, after, fill=factors.fill),
            lambda outer, *place: read(0, *place),
            read=lambda outer, y, r, k: (*outer, r, k),
            pixels=(*batch, 1, rows),
            taps=(),
            inputs=inputs,
            channels=outputs,
            tile=tile,
            dtype="int32",
            operator=operator,
            dot=factors.dot,
        )
        return te.compute(
            shape, lambda *i: _sum(sums(*i[:-2], 0, *i[-2:]), extra[i[-1]]), name="crop"
        )

    return _call(builder, dense, data, factors, 1, tile, "qnn_dense")


def _tiles(
    height: int,
    width: int,
    channels: int,
    steps: int,
    apart: int,
    factors: Factors,
    machine: Machine,
) -> list[Tile]:
    """Rank the tiles as `Tile.ranked` does, in the registers that the instruction leaves free."""
    spare = factors.dot.spare if factors.dot else 0
    free = replace(machine, registers=machine.registers - spare)
    return Tile.ranked(height, width, channels, steps, apart, "int32", free, factors.weight.nbytes)


def _call(
    builder: relax.BlockBuilder,
    compute: Callable[..., te.Tensor],
    data: relax.Expr,
    factors: Factors,
    groups: int,
    tile: Tile,
    name: str,
) -> relax.Call:
    """Call a kernel with its packed weights and its corrections."""
    return builder.call_te(
        compute,
        data,
        relax.const(factors.packed(groups, tile.channels)),
        relax.const(factors.extra),
        primfunc_name_hint=name,
        primfunc_attrs={"op_pattern": _OUT_ELEMENTWISE},
    )


def _depthwise(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    factors: Factors,
    window: Window,
    shape: list[Any],
    machine: Machine,
) -> relax.Expr:
    """Legalize a depthwise ``qnn.conv2d``: as many groups as channels."""
    filters = factors.weight[..., 0].transpose(1, 2, 0)  # [kh, kw, channels]
    plain = filters.shape[:2] == (1, 1) and window.strides == [1, 1] and window.before == [0, 0]
    if plain and sizes(data.ty.shape) == shape:
        return _scale(builder, data, filters[0, 0].astype(np.int32), factors.move)
    step = machine.lanes("int32")
    extra = round_up(shape[3], step) - shape[3]
    packed = np.ascontiguousarray(np.pad(filters, [(0, 0), (0, 0), (0, extra)]))
    columns = pixels_of_a_vector(shape[2], filters[..., 0].size, machine)

    def depthwise_conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return depthwise(factors.moved(x), w, window, shape, columns, step, "int32")

    return builder.call_te(
        depthwise_conv2d,
        data,
        relax.const(packed),
        primfunc_name_hint="qnn_depthwise_conv2d",
        primfunc_attrs={"op_pattern": _OUT_ELEMENTWISE},
    )


def _scale(
    builder: relax.BlockBuilder, data: relax.Expr, factors: NDArray[np.int32], move: int
) -> relax.Expr:
    """Legalize a convolution of one tap, where nothing moves: each channel times its number."""
    extra = factors * move
    alike = bool((factors == factors[0]).all())

    def scale(x: te.Tensor, *rows: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> Any:
            factor, more = (
                tirx.const(int(row[0]), "int32") if alike else rows[i][index[-1]]
                for i, row in enumerate((factors, extra))
            )
            return _sum(x(*index).astype("int32") * factor, more)

        return te.compute(x.shape, value, name="scale")

    tables = [] if alike else [relax.const(factors), relax.const(extra)]
    return builder.call_te(
        scale,
        data,
        *tables,
        primfunc_name_hint="qnn_scale",
        primfunc_attrs={"op_pattern": _ELEMENTWISE},
    )


def _sum(a: Any, b: Any) -> Any:
    """Add two int32, without letting the compiler conclude that the sum stays in int32."""
    return tirx.bitwise_not(tirx.bitwise_not(a) - b)


def _add(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``add`` of int32: most often a bias, before a requantization."""
    shapes = [getattr(x.ty, "shape", None) for x in (*call.args, call)]
    if str(call.ty.dtype) != "int32" or not all(isinstance(s, relax.ShapeExpr) for s in shapes):
        return None
    *given, shape = (sizes(s.values) for s in shapes if s is not None)

    def add(*terms: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> Any:
            places = [broadcast_index(index, one, shape) for one in given]
            return _sum(*(term(*at) for term, at in zip(terms, places, strict=True)))

        return te.compute(shape, value, name="add")

    return builder.call_te(add, *call.args, primfunc_name_hint="add")
