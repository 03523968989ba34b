"""Compute quantized per-channel linear functions of 8-bit numbers as step functions in int32.

A batch normalization on its own becomes, in integers, a product with a number per channel, a
sum, and a requantization: a dozen instructions per vector, because those sums have 32 bits. But
the input has 8 bits, so the result is a step function with at most 256 steps. Usually
``(x * factor + half) >> shift``, saturated, is the same function, with a 22-bit factor. The pass
checks this at compile time for all numbers and channels, against the reference arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

from ..ir import dialect
from ..qnn import arithmetic

__all__ = ["Staircases"]

Int64 = NDArray[np.int64]
# Bits of a factor: the product with 8 bits, plus the offset, fits into int32. Shifts that are
# tried, and how far factors are from the slope.
_BITS, _SHIFTS, _NEAR = 22, 3, (0, 1, -1)
_NARROW = ("int8", "uint8")


@relax.transform.function_pass(opt_level=0)
class Staircases:
    """The pass: `qnn.conv2d` of one tap and channel, `add`, `qnn.requantize` to Relax in int32."""

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        x, bias = wildcard(), is_const()
        weight = [is_const() for _ in range(3)]
        conv = is_op("relax.qnn.conv2d")(x, *weight, wildcard(), wildcard())
        scales = [is_const() for _ in range(4)]
        pattern = is_op("relax.qnn.requantize")(is_op("relax.add")(conv, bias), *scales)

        def rewrite(expr: relax.Expr, found: Any) -> relax.Expr:
            if not isinstance(expr, relax.Call):
                return expr  # another name of a match, which is rewritten where it is bound
            made = _staircase(
                found[x],
                dialect.attributes(found[conv]),
                [found[part].value.numpy() for part in (*weight, bias)],
                dialect.attributes(expr),
                [found[part].value.numpy() for part in scales],
            )
            return expr if made is None else made

        return rewrite_call(pattern, rewrite, func)


def _staircase(
    x: relax.Expr,
    conv: dict[str, Any],
    numbers: list[NDArray[Any]],
    requantize: dict[str, Any],
    scales: list[NDArray[Any]],
) -> relax.Expr | None:
    """Return the step function; None if the calls do not match, or no factors are found."""
    weight, zero, weight_zero, bias = numbers
    axis, rank = conv["data_layout"].find("C"), len(conv["data_layout"])
    channels, dtype, out_dtype = weight.size, str(x.ty.dtype), requantize["out_dtype"]
    alone = conv["groups"] == channels and weight.ndim == rank  # one weight per channel: one tap
    still = {*conv["strides"]} == {1} and not any(conv["padding"])
    here = requantize["axis"] % rank == axis and conv["out_layout"] in ("", conv["data_layout"])
    along = [1] * rank
    along[axis] = channels
    fits = bias.size in (1, channels) and np.broadcast_shapes(bias.shape, tuple(along)) == (*along,)
    if not (alone and still and here and fits and {dtype, out_dtype} <= {*_NARROW}):
        return None
    ends = np.iinfo(dtype)
    every = np.arange(ends.min, ends.max + 1, dtype=np.int64)
    slope = weight.ravel().astype(np.int64) - weight_zero.ravel()
    sums = (every[:, None] - int(zero.ravel()[0])) * slope + bias.ravel()
    in_scale, in_zero, out_scale, out_zero = scales
    wanted = arithmetic.requantize(
        sums.astype(np.int32),
        in_scale,
        in_zero,
        out_scale,
        out_zero,
        axis=1,
        rounding=requantize["rounding"],
        compute_dtype=requantize["compute_dtype"],
        out_dtype=out_dtype,
    )
    real = slope * (in_scale.astype(np.float64) / out_scale.astype(np.float64)).ravel()
    found = _fit(every, real, wanted.T.astype(np.int64), out_dtype)
    if found is None:
        return None
    factor, half, shift = found
    parts = [relax.const(part.astype(np.int32).reshape(along)) for part in (factor, half)]
    line = relax.op.add(relax.op.multiply(relax.op.astype(x, "int32"), parts[0]), parts[1])
    steps = relax.op.right_shift(line, relax.const(shift, "int32"))
    limits = np.iinfo(out_dtype)
    return relax.op.astype(relax.op.clip(steps, int(limits.min), int(limits.max)), out_dtype)


def _fit(
    x: Int64, slope: NDArray[np.float64], wanted: Int64, dtype: str
) -> tuple[Int64, Int64, int] | None:
    """Find factors and offsets, one for each channel, and a common shift."""
    ends, far = np.iinfo(dtype), 1 << 40
    largest = int(np.floor(np.log2((1 << _BITS) / max(np.abs(slope).max(), 2.0**-8))))
    for shift in range(min(largest, 30), max(0, largest - _SHIFTS), -1):
        step = 1 << shift
        # Bounds for the offset; saturated values are bounded on one side only.
        low = np.where(wanted > ends.min, wanted * step, -far)
        high = np.where(wanted < ends.max, (wanted + 1) * step - 1, far)
        factor, half = np.zeros((2, len(slope)), np.int64)
        open_ = np.ones(len(slope), bool)
        for more in _NEAR:
            near = np.round(slope * step).astype(np.int64) + more
            lines = x * near[:, None]
            least, most = (low - lines).max(1), (high - lines).min(1)
            middle = np.clip((least + most) // 2, -(1 << 30), 1 << 30)
            good = open_ & (least <= middle) & (middle <= most) & (np.abs(near) < 1 << _BITS)
            factor[good], half[good] = near[good], middle[good]
            open_ &= ~good
        if not open_.any():
            return factor, half, shift
    return None
