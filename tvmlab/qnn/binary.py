"""Quantized addition, subtraction and multiplication of two tensors.

The operators are Relay's (src/relay/qnn/op: op_common.h, add.cc, subtract.cc, mul.cc, TVM 0.18).
Roundings ``"TFLITE"`` and ``"ONNX"`` select those frameworks' kernels, see `tvmlab.qnn.frameworks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ..errors import InputError
from . import checks, config, frameworks, layout
from .checks import Array, limits
from .fixed_point import INT32
from .numbers import Number, Value, cast, half_even, prevent_contraction, saturate, wrap
from .operands import CallOperands
from .operator import Operand, Operator, operator
from .rescale import rescale, rescale_or_keep

Int64 = npt.NDArray[np.int64]
# Bits of half a factor; the number of shifts to try; the largest number of corrected pairs.
_HALF, _SHIFTS, _APART = 11, 3, 2
_NEAR = (0, 1, -1)


@dataclass(frozen=True)
class ShortAdd:
    """``(x * factors[0] + y * factors[1] + half) >> shift`` in int32, saturated.

    TFLite's addition of 8-bit tensors multiplies three times by 31 bits and rounds each time. The
    first two roundings are fine, so the result mostly equals the formula above with factors of 22
    bits. `find` tries all 65,536 pairs of numbers when the kernel is made. Where the formula fails,
    it fails for one or two pairs (`apart`), which the kernel corrects. Each factor is split into
    two of 11 bits, because processors multiply by 15 bits in one instruction.
    """

    factors: tuple[int, int]
    half: int
    shift: int
    dtype: str
    apart: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def find(cls, ratios: tuple[float, float], wanted: Int64, dtype: str) -> ShortAdd | None:
        """Return constants that produce the results in `wanted`, or None."""
        largest = int(np.floor(np.log2((1 << (2 * _HALF)) / max(map(abs, ratios)))))
        best: ShortAdd | None = None
        for shift in range(min(largest, 30), max(0, largest - _SHIFTS), -1):
            for more in product(_NEAR, _NEAR):
                factors = [round(r * (1 << shift)) + m for r, m in zip(ratios, more, strict=True)]
                if max(map(abs, factors)) >= 1 << (2 * _HALF):
                    continue
                found = cls._fit((factors[0], factors[1]), shift, wanted, dtype)
                if found and not found.apart:
                    return found
                if found and (best is None or len(found.apart) < len(best.apart)):
                    best = found
        return best

    @classmethod
    def _fit(
        cls, factors: tuple[int, int], shift: int, wanted: Int64, dtype: str
    ) -> ShortAdd | None:
        """Choose the `half` with the fewest wrong pairs; return None if too many are wrong."""
        low, high = limits(dtype)
        x = np.arange(low, high + 1, dtype=np.int64)
        sums = x[:, None] * factors[0] + x * factors[1]
        # Bounds for `half`; a saturated result limits it on one side only.
        least = ((wanted << shift) - sums)[wanted > low]
        most = (((wanted + 1) << shift) - 1 - sums)[wanted < high]
        if not least.size or not most.size:
            return None
        last = min(_APART + 1, least.size)
        tried = np.sort(np.partition(least, -last)[-last:])
        half = int(tried[np.argmin([(least > h).sum() + (most < h).sum() for h in tried])])
        if half == least.max() <= most.min():
            half = int(least.max() + most.min()) // 2
        made = np.clip((sums + half) >> shift, low, high)
        where = np.argwhere(made != wanted)
        ends = sums.min() + half, sums.max() + half
        if len(where) > _APART or ends[0] < -(1 << 31) or ends[1] >= 1 << 31:
            return None
        apart = tuple((int(x[i]), int(x[j]), int((wanted - made)[i, j])) for i, j in where)
        return cls(factors, half, shift, dtype, apart)

    def apply(self, x: tirx.PrimExpr, y: tirx.PrimExpr) -> tirx.PrimExpr:
        """Add two numbers of `dtype`."""
        first, second = x.astype("int32"), y.astype("int32")
        (a, b), (c, d) = (divmod(factor, 1 << _HALF) for factor in self.factors)
        upper, lower = first * a + second * c, first * b + second * d
        found = ((upper << _HALF) + (lower + self.half)) >> self.shift
        zero = tirx.const(0, "int32")
        for left, right, more in self.apart:
            pair = (first << 8) + second
            found += tirx.Select(pair.equal((left << 8) + right), tirx.const(more, "int32"), zero)
        return saturate(Number(found, INT32), self.dtype).expr


def _short_sum(
    row: Operator, given: CallOperands, known: Mapping[str, Any]
) -> Callable[..., tirx.PrimExpr] | None:
    """Return a sum with short factors if it fits all pairs of 8 bits, for TFLITE and ONNX."""
    dtype, rounding = given.dtype("lhs"), given.attributes["rounding"]
    rounding = config.resolve(given.name, rounding).rounding
    if rounding not in ("TFLITE", "ONNX") or any(np.ndim(value) for value in known.values()):
        return None
    if dtype not in ("int8", "uint8"):
        return None
    low, high = checks.limits(dtype)
    every = np.arange(low, high + 1, dtype=dtype)
    wanted = row.reference(every[:, None], every, *known.values(), rounding=rounding)
    left, right = (float(known[f"{side}_scale"] / known["output_scale"]) for side in ("lhs", "rhs"))
    right = right if row.name == "add" else -right
    found = ShortAdd.find((left, right), wanted.astype(np.int64), dtype)
    return None if found is None else found.apply


def _tflite_sum(
    numbers: Any, sides: Sequence[Any], target: tuple[Array, Array], name: str, sign: int
) -> Value:
    """Add or subtract like TFLite: bring both sides to twice the larger scale first."""
    if numbers.dtype not in frameworks.ADD_SHIFTS:
        what = f'rounding "TFLITE" takes int8, uint8 and int16, as TFLite does, not {numbers.dtype}'
        raise InputError(what, where=f"qnn.{name}, attribute rounding")
    bits, scales = frameworks.ADD_SHIFTS[numbers.dtype], [np.float64(side[2]) for side in sides]
    twice, parts = 2 * max(scales), []
    for (side, x, _, zero), scale, by in zip(sides, scales, (1, sign), strict=True):
        moved = (x - numbers.along(side, zero)) << bits
        # Negate a subtrahend before the rounding, because its half-way cases round the other way.
        parts.append(
            numbers.times(moved if by > 0 else -moved, np.asarray(scale / twice), "TFLITE")
        )
    ratio = np.asarray(twice / ((1 << bits) * np.float64(target[0])))
    total = numbers.times(parts[0] + parts[1], ratio, "TFLITE")
    return saturate(total + int(target[1]), numbers.dtype)


def _onnx_add(numbers: Any, sides: Sequence[Any], target: tuple[Array, Array]) -> Value:
    """Add as ONNX Runtime's `MlasQLinearAddKernel` (core/mlas/lib/qladd.cpp).

    The kernel has two fused multiply-adds in float32, the right side first, and rounds half to even
    at the end. In float64 each product is exact, and the sum is rounded to float32 as by an FMA.
    """
    ratios = frameworks.ratios([side[2] for side in sides], target[0])
    total = float(frameworks.fixed_part(ratios, [side[3] for side in sides], target[1]))
    for (_, x, _, _), ratio in zip(sides[::-1], ratios[::-1], strict=True):
        # float32 holds all integers of less than 32 bits exactly.
        x = cast(x, "float32") if numbers.dtype == "int32" else x
        total = cast(cast(x, "float64") * float(ratio) + total, "float32")
        total = cast(total, "float64")
    return saturate(half_even(total), numbers.dtype)


def _onnx_subtract(numbers: Any, sides: Sequence[Any], target: tuple[Array, Array]) -> Value:
    """Subtract like ONNX Runtime, which has no kernel for subtraction.

    It dequantizes both sides, subtracts in float32 and quantizes (`MlasQuantizeLinear`,
    core/mlas/lib/quantize.cpp). Here, products of int32 that overflow float32 are clamped.
    """
    real = []
    for side, x, scale, zero in sides:
        whole = cast(x - numbers.along(side, zero), "float32")
        product = whole * numbers.along("", scale, "float32")
        # Clamp to limits that only an infinite product exceeds, so that LLVM does not fuse it.
        limit = min(2.0**33 * float(scale), float(np.finfo("float32").max))
        real.append(prevent_contraction(product, limit))
    even = half_even((real[0] - real[1]) / numbers.along("", target[0], "float32"))
    return saturate(cast(even, "float64") + float(target[1]), numbers.dtype)


def _sum(
    name: str, numbers: Any, sides: Sequence[Any], target: tuple[Array, Array], way: Any
) -> Value:
    """Add or subtract like Relay: rescale each side, and subtract one zero point from the sum."""
    sign = 1 if name == "add" else -1
    if way.rounding == "TFLITE":
        return _tflite_sum(numbers, sides, target, name, sign)
    if way.rounding == "ONNX":
        return (_onnx_add if sign > 0 else _onnx_subtract)(numbers, sides, target)
    left, right = (
        rescale_or_keep(numbers, x, (scale, zero), target, way, side)
        for side, x, scale, zero in sides
    )
    right = right + -int(target[1])
    return saturate(left + right if sign > 0 else left - right, numbers.dtype)


def _mul(
    name: str, numbers: Any, sides: Sequence[Any], target: tuple[Array, Array], way: Any
) -> Value:
    """Multiply.

    Relay's `QnnMulCanonicalize` multiplies the values less their zero points to an int32 that
    wraps, takes the product of the scales, rounded to float32, as its scale, and requantizes.
    TFLite's `Mul` (integer_ops/mul.h) uses float32 in every step of its multiplier (`Prepare`,
    kernels/mul.cc). ONNX Runtime's `MlasQLinearMulKernel` (core/mlas/lib/qlmul.cpp) adds the zero
    point before the rounding.
    """
    left, right = (x - numbers.along(side, zero) for side, x, _, zero in sides)
    product, (out_scale, out_zero) = wrap(left * right), target
    scales = [side[2] for side in sides]
    if way.rounding == "TFLITE":
        ratio = np.asarray(scales[0] * scales[1] / out_scale, np.float64)
        found = numbers.times(product, ratio, "TFLITE") + int(out_zero)
        return saturate(found, numbers.dtype)
    by_channel = [side[0] for side in sides if side[2].ndim]
    if len(by_channel) > 1 and not numbers.same_axis(*by_channel):
        what = "scales by channel of both sides need the same axis of the product"
        raise InputError(what, where=f"qnn.{name}, attributes lhs_axis and rhs_axis")
    own = by_channel[0] if by_channel else ""
    with np.errstate(over="ignore", under="ignore"):
        scale = checks.scale(
            scales[0] * scales[1], f"qnn.{name}", "lhs_scale times rhs_scale", None
        )
    if way.rounding == "ONNX":
        factor = numbers.along("", np.asarray(scale / out_scale), "float32")
        found = prevent_contraction(cast(product, "float32") * factor) + float(out_zero)
        return saturate(half_even(found), numbers.dtype)
    none = np.zeros((), np.int64)
    return rescale(numbers, product, (scale, none), target, way, numbers.dtype, own)


def _binary(name: str, what: str, compute: Callable[..., Value], short: Any = None) -> Operator:

    def define(
        numbers: Any,
        lhs: Operand,
        rhs: Operand,
        lhs_scale: Operand,
        lhs_zero_point: Operand,
        rhs_scale: Operand,
        rhs_zero_point: Operand,
        output_scale: Operand,
        output_zero_point: Operand,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
        rounding: str = "None",
    ) -> Value:
        """{what} two quantized tensors, with NumPy's broadcasting.

        Parameters
        ----------
        lhs, rhs : tensor
            Shapes that broadcast, with the same dtype: int8, uint8, int16 or int32.
        lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point : float32, int32
            Scalars, or one for each channel of their tensor.
        output_scale, output_zero_point : float32, int32
            Scalars.
        lhs_axis, rhs_axis : int
            The channels' axes; for `mul`, both sides' channels need the same axis of the product.
        rounding : str
            As in `requantize`. ``"TFLITE"`` and ``"ONNX"`` compute like the frameworks' kernels of
            this operator, which take one scale for each tensor.
        """
        way = config.resolve(f"qnn.{name}", rounding)
        sides: Any = [
            ("lhs", lhs, lhs_scale, lhs_zero_point),
            ("rhs", rhs, rhs_scale, rhs_zero_point),
        ]
        # ONNX Runtime's addition also needs one zero point for each side.
        end = 4 if way.rounding == "ONNX" and name != "mul" else 3
        single = way.rounding in ("TFLITE", "ONNX")
        if single and any(value.ndim for side in sides for value in side[2:end]):
            what = f'with rounding "{way.rounding}", {name} takes one scale per tensor'
            raise InputError(what, where=f"qnn.{name}, operands lhs_scale and rhs_scale")
        return compute(name, numbers, sides, (output_scale, output_zero_point), way)

    define.__doc__ = str(define.__doc__).format(what=what)
    axes = {"lhs": "lhs_axis", "rhs": "rhs_axis"}
    return operator(name=name, axes=axes, short=short, layout=layout.binary)(define)


_binary("add", "Add", _sum, _short_sum)
_binary("subtract", "Subtract", _sum, _short_sum)
_binary("mul", "Multiply", _mul)
