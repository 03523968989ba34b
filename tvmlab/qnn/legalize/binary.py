"""`add`, `subtract`, `mul` and `concatenate` as kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from ...errors import InputError
from ...ir import checks
from .. import arithmetic, config
from ..reference import onnx_runtime, tflite
from .casts import fenced, half_even, offset, saturate_float, wrapped
from .fixed_point import INT32, Ends, Multiplication, fits
from .operands import Given, Row, call_te, fields, known_shape
from .pairs import ShortSum
from .scale import Scaling, requantized, shifted

__all__ = ["add", "concatenate", "mul", "subtract"]

Array = npt.NDArray[Any]


class _Side:
    """An operand of an addition or a product: its scale, its zero point, and how it is read."""

    def __init__(self, given: Given, name: str, whole: Sequence[Any]) -> None:
        self.name, self.shape, self.dtype = name, given.shape(name), given.dtype(name)
        self.whole = whole
        self.axis = given.axis(name, given.attributes[f"{name}_axis"])
        count = given.channels(name, self.axis)
        self.scale = given.scale(f"{name}_scale", count)
        self.zero = Row(given.zero_point(f"{name}_zero_point", self.dtype, count), dtype="int32")
        self.ends = shifted(checks.limits(self.dtype), self.zero)

    def at(self, index: Sequence[Any]) -> list[Any]:
        """Index this side at a place of what it is broadcast to.

        An index stays where nothing is broadcast, even if it can only be 0: `FuseOps` takes for
        element-wise what is indexed alike.
        """
        last = index[len(index) - len(self.shape) :]
        whole = self.whole[len(index) - len(self.shape) :]
        one = [
            isinstance(size, int) and size == 1 and size != other
            for size, other in zip(self.shape, whole, strict=True)
        ]
        return [0 if alone else i for alone, i in zip(one, last, strict=True)]

    def channel(self, place: Sequence[Any]) -> Any:
        """Give the channel of a place of this side."""
        return place[self.axis] if self.shape else 0

    def less_zero(
        self, tensor: te.Tensor, index: Sequence[Any], wraps: bool = True
    ) -> tirx.PrimExpr:
        """Read a number less its zero point, as int32; one that does not fit wraps or is int64."""
        place = self.at(index)
        kind = "int32" if fits(self.ends) else "int64"
        number, zero = tensor(*place).astype(kind), self.zero.read(self.channel(place))
        less = number - zero.astype(kind)
        return wrapped(less) if kind == "int64" and wraps else less


class _Both:
    """What an addition and a product have in common."""

    def __init__(self, builder: relax.BlockBuilder, call: relax.Call) -> None:
        self.given = given = Given(builder, call)
        self.shape = known_shape(given.name, "lhs", call)
        self.sides = [_Side(given, name, self.shape) for name in ("lhs", "rhs")]
        self.dtype = given.dtype("lhs")
        self.out_scale = given.scale("output_scale")
        self.out_zero = int(given.zero_point("output_zero_point", self.dtype))
        self.way = config.resolve(given.name, given.attributes["rounding"])

    def zeros(self) -> list[Array]:
        """Give both sides' zero points."""
        return [np.asarray(side.zero.values) for side in self.sides]

    def scalars_only(self) -> tuple[Array, Array]:
        """Give the scales where each side has one, and ONNX Runtime's one zero point too.

        Raises
        ------
        InputError
            If one side has more.
        """
        left, right = (side.scale for side in self.sides)
        zeros = self.zeros() if self.way.rounding == "ONNX" else []
        if any(value.ndim for value in (left, right, *zeros)):
            raise InputError(
                f'rounding "{self.way.rounding}" takes one scale a tensor, as its kernels do',
                where=f"{self.given.name}, operands lhs_scale and rhs_scale",
            )
        return left, right

    def made(self, value: Any, rows: Sequence[Row]) -> relax.Expr:
        """Call a kernel of ``value(lhs, rhs, index)``."""
        name = self.given.name.replace(".", "_")

        def compute(lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
            return te.compute(self.shape, lambda *index: value(lhs, rhs, index), name=name)

        every = [*(side.zero for side in self.sides), *rows]
        return call_te(
            self.given.builder, compute, [self.given["lhs"], self.given["rhs"]], every, name
        )


def add(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.add`."""
    return _sum(_Both(builder, call), 1)


def subtract(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.subtract`."""
    return _sum(_Both(builder, call), -1)


def _sum(both: _Both, sign: int) -> relax.Expr:
    if both.way.rounding == "TFLITE":
        return _tflite_sum(both, sign)
    if both.way.rounding == "ONNX":
        return _onnx_sum(both, sign)
    first, second = (_scaling(both, side, both.out_zero) for side in both.sides)
    low, high = (x.ends if x else checks.limits(both.dtype) for x in (first, second))
    ends = _summed(low, high, sign)
    kind = "int32" if fits(ends) and both.dtype != "int32" else "int64"
    # Both have the result's zero point; one of the two is too much.
    extra = -sign * both.out_zero
    if kind == "int32" and second is not None and both.way.compute_dtype == "int64":
        second, extra = _scaling(both, both.sides[1], 0), 0
    scalings = first, second

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        numbers = []
        for side, tensor, scaling in zip(both.sides, (lhs, rhs), scalings, strict=True):
            place = side.at(index)
            number = tensor(*place)
            if scaling is not None:
                number = scaling.apply(number, side.channel(place))
            numbers.append(number.astype(kind))
        total = numbers[0] + numbers[1] if sign > 0 else numbers[0] - numbers[1]
        return offset(total, extra, both.dtype)

    return both.made(value, [row for scaling in scalings if scaling for row in scaling.rows])


def _summed(left: Ends, right: Ends, sign: int) -> Ends:
    """Bound a sum, or a difference."""
    low, high = right if sign > 0 else (-right[1], -right[0])
    return left[0] + low, left[1] + high


def _scaling(both: _Both, side: _Side, out_zero: int) -> Scaling | None:
    """Bring a side to the result's scale; None where it has that and its zero point already."""
    same = side.scale.ndim == 0 and side.scale == both.out_scale
    if same and side.zero.is_all(both.out_zero):
        return None
    zero = Row(out_zero, dtype="int32")
    return Scaling(side.scale, side.zero, both.out_scale, zero, side.dtype, "int32", both.way)


def _tflite_sum(both: _Both, sign: int) -> relax.Expr:
    """Add or subtract as TFLite does: both sides against twice the larger scale."""
    left, right = (np.float64(scale) for scale in both.scalars_only())
    if both.dtype not in tflite.ADD_SHIFTS:
        raise InputError(
            f'TFLite adds no quantized {both.dtype}: rounding "TFLITE" takes int8, uint8 and int16',
            where=f"{both.given.name}, attribute rounding",
        )
    if (short := _short_sum(both, sign)) is not None:
        return short
    bits, twice = tflite.ADD_SHIFTS[both.dtype], 2 * max(left, right)
    ratios = (left / twice, right / twice, twice / ((1 << bits) * np.float64(both.out_scale)))
    *parts, whole = (Multiplication(np.asarray(ratio), "TFLITE", INT32) for ratio in ratios)

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        first, second = (
            side.less_zero(tensor, index) << bits
            for side, tensor in zip(both.sides, (lhs, rhs), strict=True)
        )
        # What is subtracted is negated first: its half-way cases go the other way.
        second = second if sign > 0 else tirx.const(0, "int32") - second
        total = parts[0].apply(first, 0) + parts[1].apply(second, 0)
        return offset(whole.apply(total, 0), both.out_zero, both.dtype)

    return both.made(value, [row for part in (*parts, whole) for row in part.rows])


def _onnx_sum(both: _Both, sign: int) -> relax.Expr:
    """Add as ONNX Runtime does: in float32, each step a fused product and sum."""
    if (short := _short_sum(both, sign)) is not None:
        return short
    if sign < 0:
        return _onnx_difference(both)
    ratios, zeros = onnx_runtime.ratios(both.scalars_only(), both.out_scale), both.zeros()
    fixed = float(onnx_runtime.fixed_part(ratios, zeros, np.asarray(both.out_zero)))

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        total: Any = tirx.const(fixed, "float64")
        for i, tensor in ((1, rhs), (0, lhs)):
            number = tensor(*both.sides[i].at(index))
            if both.dtype == "int32":
                number = number.astype("float32")  # all of the narrower ones are such a number
            number = number.astype("float64")
            # The product is exact; the sum rounds to float32, as an FMA's.
            total = number * tirx.const(float(ratios[i]), "float64") + total
            total = total.astype("float32").astype("float64")
        return saturate_float(half_even(total), both.dtype)

    return both.made(value, [])


def _onnx_difference(both: _Both) -> relax.Expr:
    """Subtract as ONNX Runtime does: dequantized, in float32, and quantized."""
    scales = both.scalars_only()

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        real = []
        for side, tensor, scale in zip(both.sides, (lhs, rhs), scales, strict=True):
            number = side.less_zero(tensor, index, wraps=False).astype("float32")
            product = number * tirx.const(float(scale), "float32")
            # Limits that only an infinite product reaches keep it apart from the difference.
            limit = min(2.0**33 * float(scale), float(np.finfo("float32").max))
            real.append(fenced(product, limit))
        difference = real[0] - real[1]
        even = half_even(difference / tirx.const(float(both.out_scale), "float32"))
        return saturate_float(even.astype("float64") + float(both.out_zero), both.dtype)

    return both.made(value, [])


def _short_sum(both: _Both, sign: int) -> relax.Expr | None:
    """Add or subtract 8 bits with shorter factors, where that is the same."""
    low, high = checks.limits(both.dtype)
    left, right = both.sides
    zeros = both.zeros()
    if both.dtype not in ("int8", "uint8") or any(zero.ndim for zero in zeros):
        return None
    every = np.arange(low, high + 1, dtype=both.dtype)
    reference = arithmetic.add if sign > 0 else arithmetic.subtract
    wanted = reference(
        every[:, None],
        every,
        *(left.scale, zeros[0], right.scale, zeros[1]),
        *(both.out_scale, both.out_zero),
        rounding=both.way.rounding,
    )
    ratios = left.scale / both.out_scale, sign * right.scale / both.out_scale
    found = ShortSum.find((float(ratios[0]), float(ratios[1])), wanted.astype(np.int64), both.dtype)
    if found is None:
        return None

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        return found.apply(lhs(*left.at(index)), rhs(*right.at(index)))

    return both.made(value, [])


def mul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.mul`."""
    both = _Both(builder, call)
    left, right = both.sides
    corners = [a * b for a in left.ends for b in right.ends]
    ends = (min(corners), max(corners))
    ends = ends if fits(ends) else INT32  # larger products wrap
    out_zero, axis = Row(both.out_zero, dtype="int32"), _product_axis(both)
    if both.way.rounding == "TFLITE":
        ratio = tflite.product_multiplier((*both.scalars_only(), both.out_scale))
        multiplication = Multiplication(ratio, "TFLITE", ends)
        rows = multiplication.rows
    else:
        none = Row(0, dtype="int32")
        with np.errstate(over="ignore", under="ignore"):
            scale = left.scale * right.scale
        scaling = Scaling(
            scale, none, both.out_scale, out_zero, "int32", both.dtype, both.way, ends
        )
        rows = scaling.rows

    if both.way.rounding == "ONNX":
        over = Row(scale / both.out_scale, dtype="float32")
        rows = [over]

    def value(lhs: te.Tensor, rhs: te.Tensor, index: Sequence[Any]) -> tirx.PrimExpr:
        a, b = left.less_zero(lhs, index), right.less_zero(rhs, index)
        product = a * b
        if not fits((min(corners), max(corners))):
            product = wrapped(a.astype("int64") * b.astype("int64"))
        if both.way.rounding == "ONNX":
            factor = over.read(index[axis] if index else 0)
            found = fenced(product.astype("float32") * factor) + float(both.out_zero)
            return saturate_float(half_even(found), both.dtype)
        if both.way.rounding != "TFLITE":
            return scaling.apply(product, index[axis] if index else 0)
        found = multiplication.apply(product, 0)
        if both.dtype == "int32":
            found = found.astype("int64")
        return offset(found, both.out_zero, both.dtype)

    return both.made(value, rows)


def _product_axis(both: _Both) -> int:
    """Give the axis of a product's channels.

    Raises
    ------
    InputError
        If both sides have scales by channel, and not along one axis.
    """
    axes = {side.axis - len(side.shape) for side in both.sides if side.scale.ndim}
    if len(axes) > 1:
        raise InputError(
            f"lhs_axis and rhs_axis are {sorted(axes)} from the end; scales by channel need the "
            "same axis of the product",
            where=f"{both.given.name}, attribute rhs_axis",
        )
    return axes.pop() if axes else -1


def concatenate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.concatenate`: what has another scale is requantized, then all is joined."""
    given = Given(builder, call)
    out_scale, dtype = given.scale("output_scale"), str(call.ty.dtype)
    out_zero = given.zero_point("output_zero_point", dtype)
    named = ("data", "input_scales", "input_zero_points")
    parts = []
    for i, (x, scale, zero) in enumerate(
        zip(*(fields(builder, given[n]) for n in named), strict=True)
    ):
        own = given.checked_scale(f"input_scales.{i}", scale)
        point = given.checked_zero_point(f"input_zero_points.{i}", zero, dtype)
        if own == out_scale and point == out_zero:
            parts.append(x)
            continue
        rows = (Row(value, dtype="int32") for value in (point, out_zero))
        first, last = rows
        scaling = Scaling(
            own, first, out_scale, last, dtype, dtype, config.resolve("qnn.requantize")
        )
        parts.append(builder.emit(requantized(builder, x, scaling, given.name)))
    return relax.op.concat(parts, given.attributes["axis"])
