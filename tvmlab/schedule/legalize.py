"""Operators to loop nests over packed weights: the legalizations for `LegalizeOps`.

A legalization takes the block builder and the call and returns the call to put in its place; where
a call is of another form than it serves, it returns what upstream's own legalization makes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from .compute import (
    PACK,
    Window,
    broadcast_index,
    by,
    contraction,
    depthwise,
    packed_shape,
    padded,
    round_up,
    sizes,
)
from .dot import dot_legalizations
from .layouts import Layouts
from .machine import Machine
from .tile import OPEN, Tile, pixels_of_a_vector
from .winograd import Squares

__all__ = ["legalizations"]

#: None says that the call is of another form than the legalization serves.
Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]


def legalizations(
    machine: Machine,
    layouts: Layouts | None = None,
    *,
    pack: bool = True,
    winograd: bool = True,
) -> dict[str, Legalization]:
    """Make the legalizations of the operators that the contraction rules serve.

    Parameters
    ----------
    machine : Machine
        What to tile for.
    layouts : Layouts, optional
        Who chooses the tiles; the rules' estimate where it is left out.
    pack : bool, optional
        Whether constant weights are packed now. Else they are read as the model has them.
    winograd : bool, optional
        Whether convolutions are computed in Winograd's way where that is less work.

    Returns
    -------
    dict
        From the operator's name to its legalization.
    """
    layouts = layouts or Layouts()
    return {
        "relax.nn.conv2d": _or_upstream(
            lambda builder, call: _conv2d(builder, call, machine, layouts, pack, winograd)
        ),
        "relax.matmul": _or_upstream(
            lambda builder, call: _matmul(builder, call, machine, layouts, pack)
        ),
        **{name: _or_upstream(made) for name, made in dot_legalizations(machine, layouts).items()},
    }


def _or_upstream(legalization: Legalization) -> Legalization:
    """Let a legalization that raises cost its operator the schedule, not the model the compiler."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        try:
            made = legalization(builder, call)
        except Exception as error:  # schedules and TE raise several classes
            warnings.warn(f"{call.op.name} is left to upstream: {error!r}", stacklevel=2)
            made = None
        return _upstream(builder, call) if made is None else made

    return legalize


def _upstream(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return call.op.get_attr("FLegalize")(builder, call)


def _conv2d(
    builder: relax.BlockBuilder,
    call: relax.Call,
    machine: Machine,
    layouts: Layouts,
    pack: bool,
    winograd: bool,
) -> relax.Expr:
    """Legalize ``nn.conv2d`` in NHWC with OHWI weights."""
    attrs, (data, weight) = call.attrs, call.args
    written = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    filters = sizes(weight.ty.shape)
    shape = sizes(call.ty.shape)
    if written not in (("NHWC", "OHWI", "NHWC"), ("NHWC", "OHWI", "")) or not all(
        isinstance(size, int) and size for size in (*filters, *shape[1:], *sizes(data.ty.shape)[1:])
    ):
        return _upstream(builder, call)
    groups, dtype = int(attrs.groups), str(call.ty.dtype)
    outputs, *taps, inputs = filters
    window = Window(taps, attrs.strides, attrs.padding, attrs.dilation)
    if groups == outputs > 1 and inputs == 1 and isinstance(weight, tvm.ir.GenericConst):
        return _depthwise(builder, data, weight, window, shape, dtype, machine)
    whole = str(data.ty.dtype) == str(weight.ty.dtype) == dtype
    if winograd and whole and isinstance(weight, tvm.ir.GenericConst):
        squares = Squares.choose(window, shape, inputs, groups, dtype, machine, layouts)
        if squares:
            return _winograd(builder, data, weight, squares)
    each = outputs // groups
    apart = groups * inputs * window.strides[1] * tvm.DataType(str(data.ty.dtype)).bits // 8
    steps = math.prod(filters[1:])
    constant = isinstance(weight, tvm.ir.GenericConst)
    operator = (
        f"conv2d {by(data.ty.shape)} {data.ty.dtype}, {'' if constant else 'variable '}weights "
        f"{by(filters)} {weight.ty.dtype}, {window}, groups {groups}, sums {dtype}"
    )
    ranked = Tile.ranked(shape[1], shape[2], each, steps, apart, dtype, machine)
    tile = layouts.pick(operator, ranked)

    def conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        n, height, width, _ = shape
        rows, columns = round_up(height, tile.rows), round_up(width, tile.columns)
        at = window.at
        if taps == [1, 1] and window.strides != [1, 1]:
            x, at = window.gather(x, rows, columns), lambda y, c, *_: (y, c)
        else:
            x = window.pad(x, rows, columns, groups * inputs)
        sums = contraction(
            x,
            _weights(w, groups, tile.channels, constant, pack),
            read=lambda o, y, c, ky, kx, ki: (o[0], *at(y, c, ky, kx), o[1] * inputs + ki),
            pixels=(n, groups, height, width),
            taps=taps,
            inputs=inputs,
            channels=each,
            tile=tile,
            dtype=dtype,
            operator=operator,
        )
        return te.compute(shape, lambda b, y, c, o: sums[b, o // each, y, c, o % each], name="crop")

    if pack and constant:
        weight = _pack(weight, groups, tile.channels)
    return builder.call_te(conv2d, data, weight, primfunc_name_hint="conv2d")


def _weights(
    weight: te.Tensor, groups: int, tile: int, constant: bool, pack: bool
) -> Callable[..., Any]:
    """Make the function that reads a weight of group ``outer[-1]`` and channel ``o``."""
    if not (pack and constant):
        outputs, *taps = sizes(weight.shape)
        each = outputs // groups

        def read(group: Any, o: Any, *k: Any) -> Any:
            value = weight(group * each + o, *k)
            if each % tile == 0:
                return value
            return tirx.if_then_else(o < each, value, tirx.const(0, weight.dtype))

        if not pack:
            return lambda outer, o, *k: read(outer[-1], o, *k)
        # Weights that are known at run time only are packed then.
        weight = te.compute(
            packed_shape((outputs, *taps), groups, tile),
            lambda group, block, *k: read(group, block * tile + k[-1], *k[:-1]),
            name=PACK,
        )
    return lambda outer, o, *k: weight(outer[-1], o // tile, *k, o % tile)


def _pack(weight: Any, groups: int, tile: int) -> relax.Expr:
    """Pack constant weights ``[outputs, *taps, inputs]`` as `packed_shape` says."""
    return relax.const(_packed(weight.value.numpy(), groups, tile), str(weight.ty.dtype))


def _packed(array: NDArray[Any], groups: int, tile: int) -> NDArray[Any]:
    shape = packed_shape(array.shape, groups, tile)
    packed = np.zeros((groups, shape[1] * tile, *array.shape[1:]), array.dtype)
    packed[:, : array.shape[0] // groups] = array.reshape(groups, -1, *array.shape[1:])
    packed = packed.reshape(groups, shape[1], tile, *array.shape[1:])
    return np.ascontiguousarray(np.moveaxis(packed, 2, -1))


# Of relax/transform/fuse_ops.cc (OpPatternKind): what comes before is fused into the transform of
# the input, what follows into that of the output.
_INJECTIVE, _OUT_ELEMENTWISE = 2, 4


def _winograd(
    builder: relax.BlockBuilder, data: relax.Expr, weight: Any, squares: Squares
) -> relax.Expr:
    """Legalize ``nn.conv2d`` in three functions: transform, multiply, transform back."""
    filters = squares.filters(weight.value.numpy())
    packed = np.stack([_packed(each, 1, squares.tile.channels)[0] for each in filters])
    moved = builder.call_te(
        squares.input,
        data,
        primfunc_name_hint="winograd_input",
        primfunc_attrs={"op_pattern": _INJECTIVE},
    )
    sums = builder.call_te(
        squares.product,
        builder.emit(moved),
        relax.const(packed),
        primfunc_name_hint="winograd_product",
    )
    return builder.call_te(
        squares.output,
        builder.emit(sums),
        primfunc_name_hint="winograd_output",
        primfunc_attrs={"op_pattern": _OUT_ELEMENTWISE},
    )


def _depthwise(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    weight: Any,
    window: Window,
    shape: list[Any],
    dtype: str,
    machine: Machine,
) -> relax.Expr:
    """Legalize a depthwise ``nn.conv2d``: as many groups as channels."""
    array = weight.value.numpy()[..., 0]  # [channels, kh, kw]
    step = machine.lanes(dtype)
    extra = round_up(shape[3], step) - shape[3]
    packed = np.ascontiguousarray(np.pad(array.transpose(1, 2, 0), [(0, 0), (0, 0), (0, extra)]))
    columns = pixels_of_a_vector(shape[2], array[0].size, machine)

    def depthwise_conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return depthwise(x, w, window, shape, columns, step, dtype)

    constant = relax.const(packed, str(weight.ty.dtype))
    return builder.call_te(depthwise_conv2d, data, constant, primfunc_name_hint="depthwise_conv2d")


def _matmul(
    builder: relax.BlockBuilder,
    call: relax.Call,
    machine: Machine,
    layouts: Layouts,
    pack: bool,
) -> relax.Expr:
    """Legalize ``matmul``: of a matrix and constant weights, or batch by batch."""
    left, right = call.args
    a, b, shape = (sizes(x.ty.shape) for x in (left, right, call))
    dtype = str(call.ty.dtype)
    known = all(isinstance(size, int) and size for size in (*a[-1:], *b[-2:]))
    if len(a) < 2 or len(b) < 2 or not known or 0 in shape:
        return _upstream(builder, call)
    rows, inputs, channels = a[-2], a[-1], b[-1]
    apart = inputs * tvm.DataType(str(left.ty.dtype)).bits // 8
    many = rows if isinstance(rows, int) else OPEN
    constant = len(b) == 2 and isinstance(right, tvm.ir.GenericConst)
    operator = (
        f"matmul {by(a)} {left.ty.dtype}, {'' if constant else 'variable '}"
        f"{by(b)} {right.ty.dtype}, sums {dtype}"
    )
    ranked = Tile.ranked(1, many, channels, inputs, apart, dtype, machine)
    tile = layouts.pick(operator, ranked)
    batch = shape[:-2]

    def matmul(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        wide = round_up(rows, tile.columns) - rows
        x = padded(x, [0] * len(a), [*[0] * (len(a) - 2), wide, 0])
        if pack and not constant and channels % tile.channels:
            after = -channels % tile.channels
            w = padded(w, [0] * len(b), [*[0] * (len(b) - 1), after], name=PACK)
        full = sizes(w.shape)[-1] % tile.channels == 0

        def weight(outer: list[Any], o: Any, k: Any) -> Any:
            if pack and constant:
                return w(0, o // tile.channels, k, o % tile.channels)
            places = broadcast_index(outer, b[:-2])
            value = w(*places, k, o)
            return value if full else tirx.if_then_else(o < channels, value, tirx.const(0, w.dtype))

        sums = contraction(
            x,
            weight,
            read=lambda outer, y, r, k: (*broadcast_index(outer, a[:-2]), r, k),
            pixels=(*batch, 1, rows),
            taps=(),
            inputs=inputs,
            channels=channels,
            tile=tile,
            dtype=dtype,
            operator=operator,
        )
        return te.compute(shape, lambda *i: sums(*i[:-2], 0, *i[-2:]), name="crop")

    if pack and constant:
        transposed = relax.const(right.value.numpy().T, str(right.ty.dtype))
        right = _pack(transposed, 1, tile.channels)
    return builder.call_te(matmul, left, right, primfunc_name_hint="matmul")
