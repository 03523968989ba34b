"""A straight line in integers that is the float one, bit for bit, at every input.

ONNX Runtime computes a batch normalization that stands alone in float32: dequantize, multiply, add,
quantize. What goes in has 8 bits, so for each channel there are 256 results. The integer form's
bias is 1/32767 of a step; nearly always the nearest one gives the same 256, and where a result
lies that near to a half-way case, a neighbour does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir import checks
from .. import arithmetic
from .form import Form, Goal

__all__ = ["agreeing", "line"]

Array = npt.NDArray[Any]

#: How far from the nearest bias others are tried.
_FAR = 16


def line(form: Form, gain: Array, add: Array, goal: Goal) -> Array:
    """Compute what floats make of every input.

    Parameters
    ----------
    form : Form
        Of the input: 8 bits, one scale and zero point.
    gain, add : numpy.ndarray
        float32, shape (channels,).
    goal : Goal
        What the result is quantized to.

    Returns
    -------
    numpy.ndarray
        int64, shape (256, channels).

    Notes
    -----
    `BatchNorm` (core/providers/cpu/nn/batch_norm.cc): the product and the sum are rounded each;
    `MlasQuantizeLinear` (core/mlas/lib/quantize.cpp): a quotient, rounded half to even.
    """
    low, high = checks.limits(form.dtype)
    whole = np.arange(low, high + 1, dtype=np.int64) - int(form.zero)
    real = whole.astype(np.float32) * form.scale.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        made = (real[:, None] * gain + add) / np.float32(goal.scale)
        steps = np.rint(np.nan_to_num(made)).astype(np.float64) + goal.zero
    cut: Array = np.clip(steps, *checks.limits(goal.dtype)).astype(np.int64)
    return cut


def agreeing(
    form: Form, weight: Array, bias: Array, scale: Array, wanted: Array, goal: Goal, rounding: str
) -> Array:
    """Choose the biases with which integers give what floats do.

    Parameters
    ----------
    form : Form
        Of the input.
    weight, bias : numpy.ndarray
        int64, shape (channels,): the factor, and the nearest bias.
    scale : numpy.ndarray
        float32, shape (channels,): of the sums.
    wanted : numpy.ndarray
        What `line` gives.
    goal : Goal
        What the sums are requantized to.
    rounding : str
        The requantize's.

    Returns
    -------
    numpy.ndarray
        int64, shape (channels,): the nearest bias with the fewest results that differ.
    """
    low, high = checks.limits(form.dtype)
    whole = np.arange(low, high + 1, dtype=np.int64)[:, None] - int(form.zero)
    best, least = bias.copy(), np.full(len(bias), wanted.shape[0] + 1)
    for near in sorted(range(-_FAR, _FAR + 1), key=abs):
        left = np.flatnonzero(least)
        if not left.size:
            break
        sums = whole * weight[left] + bias[left] + near
        made = arithmetic.requantize(
            np.clip(sums, *checks.limits("int32")).astype(np.int32),
            scale[left] if scale.ndim else scale,
            0,
            np.float32(goal.scale),
            goal.zero,
            axis=1,
            rounding=rounding,
            out_dtype=goal.dtype,
        )
        wrong = (made != wanted[:, left]).sum(0)
        better = wrong < least[left]
        best[left[better]], least[left[better]] = bias[left[better]] + near, wrong[better]
    return best
