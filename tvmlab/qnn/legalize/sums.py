"""What a convolution or a matrix product of quantized numbers needs to know: said once.

    sum((a - za) * (w - zw)) == sum(a * v) - za * sum(v)   with v = w - zw, and padding being za

Where the weights are constant, v and ``sum(v)`` are computed now. The loops then multiply integers
as narrow as they were, and what the zero points add is one number for each output channel. In
integers that wrap, both sides are the same; in kernels, sums that wrap are warned of.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.checks import limits
from ..reference.bounds import sum_range
from .operands import Given, Row

__all__ = ["Sums"]

Array = npt.NDArray[Any]
_DTYPES = ("int8", "int16", "int32")


@dataclass(frozen=True)
class Sums:
    """The factors of a product with constant weights, less their zero points.

    Attributes
    ----------
    weight : numpy.ndarray
        `v` in the narrowest of int8, int16 and int32 that holds it; for a convolution
        ``[outputs, inputs of a group, kh, kw]``, for a matrix product ``[outputs, inputs]``.
    zero : int
        `za`, which padding is filled with.
    extra : numpy.ndarray
        ``-za * sum(v)``, one for each output channel, in the dtype of the sums; they wrap.
    """

    weight: Array
    zero: int
    extra: Array

    @classmethod
    def of(cls, given: Given, data: str, weight: str, kernel: Array | None) -> Sums | None:
        """Take a call's constants apart; None where not all of them are constants.

        Parameters
        ----------
        given : Given
            The call.
        data, weight : str
            The operands' names.
        kernel : numpy.ndarray or None
            The weight's value, its first axis being the output channels.

        Raises
        ------
        InputError
            If a scale or zero point is none.
        """
        zeros = [name for name in given.names if name.endswith("_zero_point")]
        dtypes = (given.dtype(data), given.dtype(weight))
        channels = None if kernel is None else len(kernel)
        given.check_scales(kernel_scale=channels)
        if kernel is None or any(given.array(name) is None for name in zeros):
            return None
        zero, kernel_zero = (
            given.zero_point(name, dtype, count)
            for name, dtype, count in zip(zeros, dtypes, (1, channels), strict=True)
        )
        whole = kernel.astype(np.int64) - kernel_zero.reshape(-1, *[1] * (kernel.ndim - 1))
        total = whole.reshape(len(kernel), -1).sum(1)
        _warn(given, dtypes[0], zero, kernel, kernel_zero)
        kind = "int64" if given.attributes["out_dtype"] == "int64" else "int32"
        return cls(_narrowed(whole), int(zero), (-zero * total).astype(kind))

    def row(self) -> Row:
        """Give `extra` as what a kernel reads."""
        return Row(self.extra, dtype=str(self.extra.dtype))


def _narrowed(whole: Array) -> Array:
    """Store integers in the narrowest dtype."""
    low, high = int(whole.min(initial=0)), int(whole.max(initial=0))
    dtype = next(d for d in _DTYPES if limits(d)[0] <= low and high <= limits(d)[1])
    return whole.astype(dtype)


def _warn(given: Given, dtype: str, zero: Array, kernel: Array, kernel_zero: Array) -> None:
    """Warn of sums that can be too large for their dtype."""
    kind = given.attributes["out_dtype"]
    least, most = limits(kind)
    low, high = sum_range(kernel, dtype, zero, kernel_zero)
    if low.min(initial=0) < least or high.max(initial=0) > most:
        largest = max(-int(low.min()), int(high.max()))
        warnings.warn(
            f"{given.name} with weights of shape {kernel.shape} can overflow: {dtype} data with "
            f"zero point {int(zero)} make sums of up to {largest}, and {kind} holds {most}",
            stacklevel=2,
        )
