"""Lower operators to loop nests over packed weights: the legalizations for `LegalizeOps`.

Convolutions and matrix products of floats and of quantized numbers are the same sum
(`compute.contraction`): packed weights, a tile of sums in registers, and the fused operators in the
tile. `dot_operands` defines the operands of the products, and their addresses.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from ..ir import dialect, windows
from ..qnn.operands import CallOperands
from ..qnn.products import ConvWeights, ZeroPointCorrection
from .batches import batch_matmul
from .compute import (
    PACK,
    Window,
    broadcast_index,
    by,
    contraction,
    depthwise,
    packed_shape,
    padded,
    raveled,
    round_up,
    sizes,
    unraveled,
)
from .dot_operands import Factors, Pixels, Voxels, source
from .machine import Machine
from .movement import INJECTIVE, concat, reshape
from .norms import Norms
from .tables import looked_up, tabulated
from .tile_size import OPEN, Layouts, Tile, pixels_of_a_vector
from .winograd import Squares

__all__ = ["legalizations"]

#: None means that the legalization does not support the call.
Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr | None]

# Of relax/transform/fuse_ops.cc (OpPatternKind): the kind that is fused anywhere; sums, with which
# the operators after them are fused.
_ELEMENTWISE, _OUT_ELEMENTWISE = 0, 4
_NARROW, _MATRIX = ("int8", "uint8"), 2


def legalizations(
    machine: Machine,
    layouts: Layouts | None = None,
    *,
    pack: bool = True,
    winograd: bool = True,
) -> dict[str, Legalization]:
    """Make the legalizations of the operators that the contraction rules serve.

    Calls that a legalization does not support, or fails on, are left to upstream's legalization.

    Parameters
    ----------
    machine : Machine
        The processor to tile for.
    layouts : Layouts, optional
        The choice of tiles; by default, the rules' estimate.
    pack : bool, optional
        Whether constant float weights are packed at compile time, or read in the model's layout.
    winograd : bool, optional
        Whether to compute convolutions with Winograd's algorithm if that is less work.

    Returns
    -------
    dict
        Legalizations by operator name.
    """
    made = _Legalizer(machine, layouts or Layouts(), pack, winograd)
    named = {
        "relax.nn.conv2d": made.conv2d,
        "relax.nn.conv3d": made.conv3d,
        "relax.matmul": made.matmul,
        "relax.qnn.conv2d": made.qnn_conv2d,
        "relax.qnn.dense": made.qnn_dense,
        "relax.qnn.batch_matmul": lambda b, call: batch_matmul(b, call, machine),
        "relax.add": _add,
        "relax.concat": concat,
        "relax.reshape": reshape,
        **Norms(machine).named(),
        **dict.fromkeys(tabulated(), lambda b, call: looked_up(b, call, machine)),
    }
    return {name: _or_upstream(legalization) for name, legalization in named.items()}


def _or_upstream(legalization: Legalization) -> Legalization:
    """Leave a call to upstream's legalization if this one raises, so that compilation goes on."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        try:
            made = legalization(builder, call)
        except Exception as error:  # schedules and TE raise errors of several classes
            warnings.warn(f"{call.op.name} is left to upstream: {error!r}", stacklevel=2)
            made = None
        return call.op.get_attr("FLegalize")(builder, call) if made is None else made

    return legalize


@dataclass(frozen=True)
class _Legalizer:
    machine: Machine
    layouts: Layouts
    pack: bool
    winograd: bool

    def conv2d(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``nn.conv2d`` in NHWC with OHWI weights."""
        attrs, (data, weight) = call.attrs, call.args
        written = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
        filters, shape = sizes(weight.ty.shape), sizes(call.ty.shape)
        known = (*filters, *shape[1:], *sizes(data.ty.shape)[1:])
        if written not in (("NHWC", "OHWI", "NHWC"), ("NHWC", "OHWI", "")) or not all(
            isinstance(size, int) and size for size in known
        ):
            return None
        groups, dtype = int(attrs.groups), str(call.ty.dtype)
        outputs, *taps, inputs = filters
        window = Window(taps, attrs.strides, attrs.padding, attrs.dilation)
        constant = isinstance(weight, tvm.ir.GenericConst)
        array = weight.value.numpy() if constant else np.broadcast_to(np.int8(0), filters)
        factors = Factors.plain(array, str(data.ty.dtype))
        if constant and groups == outputs > 1 and inputs == 1:
            return self._depthwise(builder, call, factors, window, "depthwise_conv2d")
        operator = (
            f"conv2d {by(data.ty.shape)} {data.ty.dtype}, {'' if constant else 'variable '}weights "
            f"{by(filters)} {weight.ty.dtype}, {window}, groups {groups}, sums {dtype}"
        )
        return self._convolve(builder, call, factors, window, groups, operator, "conv2d")

    def conv3d(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``nn.conv3d`` in NDHWC with constant ODHWI weights."""
        attrs, (data, weight), shape = call.attrs, call.args, sizes(call.ty.shape)
        written = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
        known = all(isinstance(n, int) and n for n in (*shape, *sizes(data.ty.shape)))
        if written not in (("NDHWC", "ODHWI", "NDHWC"), ("NDHWC", "ODHWI", "")) or not known:
            return None
        if not isinstance(weight, tvm.ir.GenericConst):
            return None
        array, groups = weight.value.numpy(), int(attrs.groups)
        window = Window(array.shape[1:4], attrs.strides, attrs.padding, attrs.dilation)
        factors = Factors.plain(array, str(data.ty.dtype))
        operator = (
            f"conv3d {by(data.ty.shape)} {data.ty.dtype}, weights {by(array.shape)} "
            f"{weight.ty.dtype}, {window}, groups {groups}, sums {call.ty.dtype}"
        )
        read = Voxels(factors, window, groups, slices=shape[1])
        return self._slide(builder, call, read, self.pack, operator, "conv3d")

    def qnn_conv2d(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``qnn.conv2d`` in NHWC with OHWI weights."""
        a, data, shape = dialect.attributes(call), call.args[0], sizes(call.ty.shape)
        written = a["data_layout"], a["kernel_layout"], a["out_layout"] or a["data_layout"]
        known = [*shape[1:], *sizes(data.ty.shape)[1:]]
        found = _constants(call)
        if written != ("NHWC", "OHWI", "NHWC") or found is None:
            return None
        if not all(isinstance(size, int) for size in known):
            return None
        # Raises for invalid scales and zero points, and warns.
        ConvWeights(CallOperands(builder, call), known[-1], shape[3])
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
        factors = Factors.of(dtype, zero, weight, weight_zero, self.machine, alone=alone)
        if factors is None:
            return None
        if alone:
            plain = taps == [1, 1] and window.strides == [1, 1] and window.before == [0, 0]
            if plain and sizes(data.ty.shape) == shape:
                return _scale(builder, data, factors.weight[:, 0, 0, 0].astype(np.int32), factors)
            return self._depthwise(builder, call, factors, window, "qnn_depthwise_conv2d")
        operator = (
            f"qnn.conv2d {by(data.ty.shape)} {dtype}, weights {by(weight.shape)} {weight.dtype}, "
            f"{window}, groups {groups}, {factors.dot.name if factors.dot else 'no dot'}"
        )
        return self._convolve(builder, call, factors, window, groups, operator, "qnn_conv2d")

    def _convolve(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        factors: Factors,
        window: Window,
        groups: int,
        operator: str,
        name: str,
    ) -> relax.Expr:
        """Legalize a convolution in NHWC."""
        data, weight = call.args[:2]
        if squares := self._squares(call, factors, window, groups):
            return _winograd(builder, data, squares)
        packed = factors.quantized or (self.pack and isinstance(weight, tvm.ir.GenericConst))
        if packed and groups == 1 and _is_product(window, data, call):
            factors = replace(factors, weight=factors.weight[:, 0, 0])
            return self._multiply(builder, call, factors, True, operator, name)
        read = source(factors, window, groups)
        return self._slide(builder, call, read, packed, operator, name)

    def _squares(
        self, call: relax.Call, factors: Factors, window: Window, groups: int
    ) -> Squares | None:
        """Choose Winograd's squares for a convolution of constant weights, if they are faster."""
        data, weight = call.args[:2]
        same = factors.dtype == str(weight.ty.dtype) == str(call.ty.dtype)
        constant = isinstance(weight, tvm.ir.GenericConst)
        if not (self.winograd and constant and (same or factors.quantized)):
            return None
        shape, reach = sizes(call.ty.shape), (0, 0)
        if factors.quantized:
            ends = np.iinfo(str(data.ty.dtype))
            reach = ends.min + factors.move, ends.max + factors.move
        return Squares.choose(window, shape, groups, factors, self.machine, self.layouts, reach)

    def _slide(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        read: Pixels,
        packed: bool,
        operator: str,
        name: str,
    ) -> relax.Expr:
        """Legalize a convolution whose last axis is channels with the tile chosen for it."""
        (data, weight), shape, dtype = call.args[:2], sizes(call.ty.shape), str(call.ty.dtype)
        factors, groups = read.factors, read.groups
        *images, height, width, channels = shape
        each = channels // groups
        tile = self._tile((height, width), each, read.steps, read.apart, factors, dtype, operator)

        def convolve(x: te.Tensor, w: te.Tensor, *extra: te.Tensor) -> te.Tensor:
            x = read.prepared(x, round_up(height, tile.rows), round_up(width, tile.columns))
            if packed:
                weights = factors.reader(w, tile.channels)
            else:
                weights = _unpacked(w, groups, tile.channels, self.pack)
            sums = contraction(
                x,
                lambda outer, *place: weights(outer[-1], *place),
                read=read.at,
                pixels=(math.prod(images), groups, height, width),
                taps=read.taps,
                inputs=read.inputs,
                channels=each,
                tile=tile,
                dtype=dtype,
                operator=operator,
                dot=factors.dot,
            )

            def value(*i: Any) -> Any:
                *image, y, x, o = i
                place = raveled(image, images), o // each, y, x, o % each
                return _corrected(sums[place], extra, o)

            return te.compute(shape, value, name="crop")

        constants = factors.constants(groups, tile.channels) if packed else [weight]
        return _call(builder, convolve, data, constants, factors, name)

    def matmul(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``matmul``: a matrix times constant weights, or batch by batch."""
        left, right = call.args
        a, b = (sizes(x.ty.shape) for x in (left, right))
        if len(a) < 2 or len(b) < 2 or 0 in (*a, *b):
            return None
        constant = len(b) == 2 and isinstance(right, tvm.ir.GenericConst)
        known = [size if isinstance(size, int) else OPEN for size in b[:-3:-1]]
        array = right.value.numpy().T if constant else np.broadcast_to(np.int8(0), known)
        operator = (
            f"matmul {by(a)} {left.ty.dtype}, {'' if constant else 'variable '}"
            f"{by(b)} {right.ty.dtype}, sums {call.ty.dtype}"
        )
        factors = Factors.plain(array, str(left.ty.dtype))
        return self._multiply(builder, call, factors, self.pack and constant, operator, "matmul")

    def qnn_dense(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        """Legalize ``qnn.dense``."""
        data, found = call.args[0], _constants(call, zero=False)
        if found is None or len(call.ty.shape) < 2:
            return None
        weight, zero, weight_zero = found
        # Raises for invalid scales and zero points, and warns.
        ZeroPointCorrection.of(CallOperands(builder, call), weight)
        factors = Factors.of(str(data.ty.dtype), zero, weight, weight_zero, self.machine)
        if factors is None:
            return None
        operator = (
            f"qnn.dense {by(data.ty.shape)} {data.ty.dtype}, weights {by(weight.shape)} "
            f"{weight.dtype}, {factors.dot.name if factors.dot else 'no dot'}"
        )
        return self._multiply(builder, call, factors, True, operator, "qnn_dense")

    def _multiply(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        factors: Factors,
        packed: bool,
        operator: str,
        name: str,
    ) -> relax.Expr:
        """Legalize a matrix product with the tile chosen for it."""
        (left, right), shape, dtype = call.args[:2], sizes(call.ty.shape), str(call.ty.dtype)
        a, b = sizes(left.ty.shape), sizes(right.ty.shape)
        *batch, rows, channels = shape
        inputs = int(factors.weight.shape[1]) if packed else a[-1]
        known_inputs, known_channels = (
            n if isinstance(n, int) else OPEN for n in (inputs, channels)
        )
        wide = round_up(known_inputs, factors.depth)
        # One matrix for all: the rows of the batches follow each other.
        single = packed or len(b) == _MATRIX
        joined = single and len(a) > _MATRIX and all(isinstance(n, int) for n in (*batch, rows))
        if joined:
            batch, rows = [], math.prod(batch) * rows
        many = rows if isinstance(rows, int) else OPEN
        steps, apart = wide // factors.depth, wide * factors.bytes
        tile = self._tile((1, many), known_channels, steps, apart, factors, dtype, operator)

        def matmul(x: te.Tensor, w: te.Tensor, *more: Any) -> te.Tensor:
            *extra, whole = more
            *batch, rows, channels, inputs = sizes(whole)  # with the variables of the tensors
            x, after = factors.moved(x), (0, wide - known_inputs)
            if joined and after != (0, 0):
                x = _as_matrix(x)
            before = [0] * x.ndim
            x = padded(x, before, [*before[:-2], *after], fill=factors.fill)

            def read(outer: Any, r: Any, _: Any, k: Any) -> tuple[Any, ...]:
                if joined:
                    return (*unraveled(r, sizes(x.shape)[:-1]), k)
                return (*broadcast_index(outer, a[:-2]), r, k)

            constant = len(b) == 2 and isinstance(right, tvm.ir.GenericConst)
            beyond = round_up(channels, tile.channels) - channels
            full = isinstance(beyond, int) and beyond == 0
            if self.pack and not packed and not constant and not full:
                w = padded(w, [0] * len(b), [*[0] * (len(b) - 1), beyond], name=PACK)
                full = True

            def weight(outer: list[Any], o: Any, *k: Any) -> Any:
                if packed:
                    return factors.reader(w, tile.channels)(0, o, *k)
                value = w(*broadcast_index(outer, b[:-2]), *k, o)
                other = tirx.const(0, w.dtype)
                return value if full else tirx.if_then_else(o < channels, value, other)

            sums = contraction(
                x,
                weight,
                read=read,
                pixels=(*batch, rows, 1),
                taps=(),
                inputs=inputs,
                channels=channels,
                tile=tile.upright(),
                dtype=dtype,
                operator=operator,
                dot=factors.dot,
            )

            def value(*i: Any) -> Any:
                place = [raveled(i[:-1], shape)] if joined else i[:-1]
                return _corrected(sums(*place, 0, i[-1]), tuple(extra), i[-1], factors.move)

            return te.compute(shape if joined else [*batch, rows, channels], value, name="crop")

        constants = factors.constants(1, tile.channels) if packed else [right]
        constants += [call.args[2]] if factors.computed else []
        whole = [*batch, rows, channels, inputs]
        return _call(builder, matmul, left, [*constants, whole], factors, name)

    def _depthwise(
        self,
        builder: relax.BlockBuilder,
        call: relax.Call,
        factors: Factors,
        window: Window,
        name: str,
    ) -> relax.Expr:
        """Legalize a depthwise convolution: as many groups as channels."""
        shape, dtype = sizes(call.ty.shape), str(call.ty.dtype)
        filters = factors.weight[..., 0].transpose(1, 2, 0)  # [kh, kw, channels]
        step = self.machine.lanes(dtype)
        extra = round_up(shape[3], step) - shape[3]
        packed = np.ascontiguousarray(np.pad(filters, [(0, 0), (0, 0), (0, extra)]))
        columns = pixels_of_a_vector(shape[2], filters[..., 0].size, self.machine)

        def depthwise_conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return depthwise(factors.moved(x), w, window, shape, columns, step, dtype)

        constant = relax.const(packed, str(packed.dtype))
        return _call(builder, depthwise_conv2d, call.args[0], [constant], factors, name)

    def _tile(
        self,
        pixels: Sequence[int],
        channels: int,
        steps: int,
        apart: int,
        factors: Factors,
        dtype: str,
        operator: str,
    ) -> Tile:
        """Choose a tile for the registers that the instruction leaves free."""
        free = self.machine.beside(factors.dot)
        height, width = pixels
        ranked = Tile.ranked(height, width, channels, steps, apart, dtype, free)
        return self.layouts.pick(operator, ranked)


def _is_product(window: Window, data: relax.Expr, call: relax.Call) -> bool:
    """Whether a convolution is the product of a matrix with a row per pixel."""
    old, new = sizes(data.ty.shape), sizes(call.ty.shape)
    same = old[:3] == new[:3] and all(isinstance(size, int) for size in new)
    return same and window.taps == window.strides == [1, 1] and window.before == [0, 0]


def _call(
    builder: relax.BlockBuilder,
    compute: Callable[..., te.Tensor],
    data: relax.Expr,
    constants: list[Any],
    factors: Factors,
    name: str,
) -> relax.Call:
    attrs = {"op_pattern": _OUT_ELEMENTWISE} if factors.quantized else None
    return builder.call_te(compute, data, *constants, primfunc_name_hint=name, primfunc_attrs=attrs)


def _corrected(sums: Any, extra: tuple[te.Tensor, ...], channel: Any, move: int = 0) -> Any:
    """Add the correction of a quantized sum; floats have no correction."""
    if not extra:
        return sums
    more, *zero = extra[0][channel], *extra[1:]
    return _sum(sums, more * (zero[0]() + move) if zero else more)


def _as_matrix(x: te.Tensor) -> te.Tensor:
    """Join all axes but the last."""
    *rows, columns = sizes(x.shape)
    shape = (math.prod(rows), columns)
    return te.compute(shape, lambda r, k: x(*unraveled(r, rows), k), name="join")


def _unpacked(weight: te.Tensor, groups: int, tile: int, pack: bool) -> Callable[..., Any]:
    """Return the function ``(group, o, *k)`` that reads weights in the model's layout."""
    outputs, *taps = sizes(weight.shape)
    each = outputs // groups

    def read(group: Any, o: Any, *k: Any) -> Any:
        value = weight(group * each + o, *k)
        if each % tile == 0:
            return value
        return tirx.if_then_else(o < each, value, tirx.const(0, weight.dtype))

    if not pack:
        return read
    # Weights that are known only at run time are packed at run time.
    packed = te.compute(
        packed_shape((outputs, *taps), groups, tile),
        lambda group, block, *k: read(group, block * tile + k[-1], *k[:-1]),
        name=PACK,
    )
    return lambda group, o, *k: packed(group, o // tile, *k, o % tile)


def _constants(call: relax.Call, *, zero: bool = True) -> list[Any] | None:
    """Return weights, zero point and the weights' zero points; None if they are not constant.

    With `zero` false, the zero point can be a scalar that is not constant, and is then None.
    """
    data, *operands = call.args[:4]
    found = [x.value.numpy() if isinstance(x, tvm.ir.GenericConst) else None for x in operands]
    if found[0] is None or found[2] is None:
        return None
    if found[1] is None and (zero or operands[1].ty.ndim):
        return None
    narrow = {str(data.ty.dtype), str(found[0].dtype)} <= set(_NARROW)
    whole = dialect.attributes(call)["out_dtype"] == "int32" and 0 not in sizes(call.ty.shape)
    return found if narrow and whole and found[0].size else None


def _winograd(builder: relax.BlockBuilder, data: relax.Expr, squares: Squares) -> relax.Expr:
    """Legalize a convolution in three functions: transform, multiply, transform back."""
    moved = builder.call_te(
        squares.input,
        data,
        primfunc_name_hint="winograd_input",
        primfunc_attrs={"op_pattern": INJECTIVE},
    )
    sums = builder.call_te(
        squares.product,
        builder.emit(moved),
        relax.const(squares.weights()),
        primfunc_name_hint="winograd_product",
    )
    return builder.call_te(
        squares.output,
        builder.emit(sums),
        primfunc_name_hint="winograd_output",
        primfunc_attrs={"op_pattern": _OUT_ELEMENTWISE},
    )


def _scale(
    builder: relax.BlockBuilder, data: relax.Expr, weight: NDArray[np.int32], factors: Factors
) -> relax.Expr:
    """Legalize a convolution of one tap as an element-wise product with a number per channel."""
    rows = weight, weight * factors.move
    alike = bool((weight == weight[0]).all())

    def scale(x: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> Any:
            factor, more = (
                tirx.const(int(row[0]), "int32") if alike else tables[i][index[-1]]
                for i, row in enumerate(rows)
            )
            return _sum(x(*index).astype("int32") * factor, more)

        return te.compute(x.shape, value, name="scale")

    return builder.call_te(
        scale,
        data,
        *([] if alike else map(relax.const, rows)),
        primfunc_name_hint="qnn_scale",
        primfunc_attrs={"op_pattern": _ELEMENTWISE},
    )


def _sum(a: Any, b: Any) -> Any:
    """Add two int32, without letting the compiler conclude that the sum cannot wrap."""
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
