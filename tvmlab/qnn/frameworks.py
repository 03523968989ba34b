"""The kernels of TensorFlow Lite and ONNX Runtime that differ from Relay, in NumPy.

For TFLite these are the reference kernels (tensorflow/lite/kernels/internal/reference/integer_ops
and their ``Prepare`` functions); its optimized kernels and XNNPACK can return other results. For
ONNX Runtime they are the CPU provider on x86 with FMA (MLAS); on ARM it adds in fixed point.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .checks import Array
from .fixed_point import BITS, fixed_point_multiplier

ADD_SHIFTS = {"int8": 20, "uint8": 20, "int16": 15}
"""The bits by which TFLite shifts both sides of an addition left before it scales them."""

# An average is 0 if its divisor exceeds these powers of two times the count, by bits of the dtype.
_SMALLEST = {8: 41, 16: 49}


def averages_once(rounding: str, dtype: str, scales: Sequence[Array], taps: int) -> bool:
    """Return whether an average between two scales is rounded once, after the sum."""
    if rounding != "TFLITE" or dtype == "int32" or scales[0] == scales[1]:
        return False
    return taps <= 1 << (62 - _SMALLEST[np.dtype(dtype).itemsize * 8])


def average_parts(ratio: float, dtype: str) -> tuple[int, int]:
    """Return the 31-bit multiplier of `average_once` and the power of two of its divisor."""
    multiplier, shift = fixed_point_multiplier(ratio)
    return multiplier, min(BITS - shift, _SMALLEST[np.dtype(dtype).itemsize * 8])


def average_once(sums: Array, counts: Array, multiplier: int, exponent: int) -> Array:
    """Average sums (int64) at another scale, and round once, half-way cases away from zero.

    This is TFLite's division (`AveragePool`, integer_ops/pooling.h), extended by a ratio of scales.
    """
    over = counts.astype(np.int64) << exponent
    magnitude = (np.abs(sums) * multiplier + over // 2) // over
    return np.asarray(np.sign(sums) * magnitude)


def ratios(scales: Sequence[Array], out_scale: Array) -> list[Array]:
    """Return both sides' scales divided by the result's in float32, as ONNX Runtime adds."""
    with np.errstate(over="ignore", under="ignore"):
        return [scale / out_scale for scale in scales]


def fixed_part(ratios: Sequence[Array], zeros: Sequence[Array], out_zero: Array) -> Array:
    """Return the result's zero point less the sides', the constant term of ONNX Runtime's sums."""
    second = ratios[1] * zeros[1].astype(np.float32)
    part: Array = out_zero.astype(np.float32) - fused(ratios[0], zeros[0], second)
    return part


def fused(x: Array, factor: Array, plus: Array) -> Array:
    """Multiply and add with one rounding to float32, like a processor's FMA."""
    return (x.astype(np.float32).astype(np.float64) * factor + plus).astype(np.float32)


def real(data: Array, scale: Array) -> Array:
    """Dequantize values less their zero points in float32, clipped to its finite range."""
    most = np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        found: Array = np.clip(data.astype(np.float32) * scale, -most, most)
    return found


def average(sums: Array, counts: Array, out_scale: Array, out_zero: Array) -> Array:
    """Divide sums of `real` numbers, added row by row like ONNX Runtime; the result is not clipped.

    This is `QLinearAveragePool` (contrib_ops/cpu/quantization/qlinear_pool.cc), which replaces an
    AveragePool between 8-bit quantizes in ONNX Runtime. Half-way cases round to an even stored
    integer, because the zero point is added before the rounding. ONNX Runtime has other kernels for
    windows that cover the whole image without padding (`mean_scale`), for the last windows of
    `ceil_mode` if padding counts, and for 16 bits.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sums / counts.astype(np.float32) / out_scale
        whole: Array = np.rint(mean + out_zero.astype(np.float32))
    return whole


def mean_scale(scale: Array, out_scale: Array, count: int) -> Array:
    """Return the scale (float64) at which sums represent the mean over all positions.

    With this scale, a requantize multiplies by the same float32 as ONNX Runtime
    (`CheckQLinearGlobalAveragePoolScaleAndSize`, core/mlas/lib/qlgavgpool.cpp).
    """
    with np.errstate(over="ignore", under="ignore"):
        ratio = scale / (out_scale * np.float32(count))
    return np.asarray(ratio.astype(np.float64) * out_scale.astype(np.float64))
