"""How large the sums of a convolution or matrix product can get, before any is computed.

The sums are int32 and wrap where they do not fit, as Relay's do and as hardware does. Whether they
can is known from the dtypes and zero points, and better from the weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...ir import checks
from ...ir.checks import Array


def largest_sum(
    terms: int,
    data_dtype: str,
    weight_dtype: str,
    input_zero_point: npt.ArrayLike = 0,
    kernel_zero_point: npt.ArrayLike = 0,
) -> int:
    """Bound the magnitude of a sum of products from its shape and dtypes alone.

    Parameters
    ----------
    terms : int
        How many products: input channels of a group times the kernel's places, or the inner size.
    data_dtype, weight_dtype : str
        Dtypes of the two sides.
    input_zero_point, kernel_zero_point : array_like
        Any number of values.

    Returns
    -------
    int
        The least bound that holds for every data and weight.

    Raises
    ------
    tvmlab.errors.InputError
        If a zero point is out of its dtype's range.

    Examples
    --------
    >>> largest_sum(9 * 512, "uint8", "int8", 128) < 2**31
    True
    >>> largest_sum(70000, "uint8", "int8") < 2**31
    False
    """
    sides = (
        (data_dtype, input_zero_point, "input_zero_point"),
        (weight_dtype, kernel_zero_point, "kernel_zero_point"),
    )
    largest = terms
    for dtype, zero, name in sides:
        low, high = _reach(dtype, checks.zero_point(zero, "largest_sum", name, dtype, None))
        largest *= max(-int(low.min()), int(high.max()))
    return largest


def sum_range(
    weights: Array,
    data_dtype: str,
    input_zero_point: npt.ArrayLike = 0,
    kernel_zero_point: npt.ArrayLike = 0,
    bias: npt.ArrayLike = 0,
) -> tuple[Array, Array]:
    """Bound each channel's sum from the weights: the least and the largest that data can make.

    Parameters
    ----------
    weights : numpy.ndarray
        Shape (channels, ...): one row of weights an output channel.
    data_dtype : str
        The data's dtype.
    input_zero_point : array_like
        One value.
    kernel_zero_point, bias : array_like
        One value, or one for each channel.

    Returns
    -------
    tuple of (numpy.ndarray, numpy.ndarray)
        int64, shape (channels,): both are reached by some data, unless it is padded.

    Raises
    ------
    tvmlab.errors.InputError
        If a zero point is out of its dtype's range.
    """
    call, weights = "sum_range", np.asarray(weights)
    count = len(weights)
    zero = checks.zero_point(input_zero_point, call, "input_zero_point", data_dtype)
    own = checks.zero_point(kernel_zero_point, call, "kernel_zero_point", weights.dtype.name, count)
    rows = weights.reshape(count, -1).astype(np.int64) - own.reshape(-1, 1)
    low, high = _reach(data_dtype, zero)
    ends = np.stack([rows * low, rows * high])
    more = np.asarray(bias, np.int64)
    return ends.min(0).sum(1) + more, ends.max(0).sum(1) + more


def _reach(dtype: str, zero: Array) -> tuple[Array, Array]:
    """Give the least and the largest of an integer dtype's values less the zero point."""
    low, high = checks.limits(dtype)
    return low - zero, high - zero
