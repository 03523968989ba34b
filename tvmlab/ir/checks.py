"""Scales and zero points as values: what they have to be, said once.

A quantized tensor stands for ``scale * (value - zero_point)``. A scale that is zero, negative or
no number, or a zero point that no value can have, gives results that mean nothing; so they are
refused by name, by the reference arithmetic, by legalization and by the passes alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

Array = npt.NDArray[Any]


def scale(
    value: npt.ArrayLike, call: str, name: str, channels: int | None = 1, wide: bool = False
) -> Array:
    """Check a scale and give it as an array.

    Parameters
    ----------
    value : array_like
        A number, or one for each channel.
    call, name : str
        The operator and the operand, for errors.
    channels : int or None
        How many channels there are: that many values are allowed beside one. 1 insists on one
        value, None allows any number.
    wide : bool
        Whether float64 arrays stay what they are. Python's floats always become float32, as
        constants of Relay do.

    Returns
    -------
    numpy.ndarray
        float32 (float64 if it was and `wide`), shape () or (channels,).

    Raises
    ------
    tvmlab.errors.InputError
        If a value is zero, negative, NaN, infinite or no number, or there are too many or too few.
    """
    where = f"{call}, operand {name}"
    given = np.asarray(value)
    if given.dtype.kind not in "fiu":
        raise InputError(f"{name} has dtype {given.dtype}; float32 is needed", where=where)
    keeps = wide and isinstance(value, (np.ndarray, np.generic)) and given.dtype == np.float64
    with np.errstate(over="ignore", under="ignore"):
        found = given if keeps else given.astype(np.float32)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        position = "" if found.ndim == 0 else f" at channel {int(np.flatnonzero(bad)[0])}"
        raise InputError(
            f"{name} is {given[bad].ravel()[0]}{position}; a scale is a finite float32 above zero",
            where=where,
        )
    return _shaped(found, where, name, channels)


def zero_point(
    value: npt.ArrayLike, call: str, name: str, dtype: str, channels: int | None = 1
) -> Array:
    """Check a zero point and give it as an array.

    Parameters
    ----------
    value : array_like
        An integer, or one for each channel.
    call, name : str
        The operator and the operand, for errors.
    dtype : str
        The dtype of the tensor it belongs to; the zero point has to be one of its values.
    channels : int or None
        As in `scale`.

    Returns
    -------
    numpy.ndarray
        int64, shape () or (channels,).

    Raises
    ------
    tvmlab.errors.InputError
        If a value is no integer or out of the range of `dtype`, there are too many or too few, or
        the tensor's dtype is none of integers.
    """
    where = f"{call}, operand {name}"
    given = np.asarray(value)
    if given.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {given.dtype}; int32 is needed", where=where)
    found = given.astype(np.int64)
    if np.dtype(dtype).kind not in "iu":
        raise InputError(
            f"{name} belongs to a tensor of {dtype}; one of integers is needed",
            where=where,
            fix="quantize it first",
        )
    low, high = limits(dtype)
    bad = (found < low) | (found > high)
    if bad.any():
        raise InputError(
            f"{name} is {int(found[bad].ravel()[0])}; values of {dtype} lie in {low} to {high}",
            where=where,
        )
    return _shaped(found, where, name, channels)


def limits(dtype: str) -> tuple[int, int]:
    """Give the least and the largest value of an integer dtype; int64's for int64.

    Notes
    -----
    Relay's `GetQmin` and `GetQmax` (src/relay/qnn/utils.h).
    """
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _shaped(found: Array, where: str, name: str, channels: int | None) -> Array:
    """Insist on one value or one a channel; one value in a vector is a scalar."""
    if found.ndim > 1:
        raise InputError(
            f"{name} has {found.ndim} dimensions; it is one value, or one a channel", where=where
        )
    if found.size != 1 and channels is not None and found.size != channels:
        wanted = "one value is needed" if channels == 1 else f"there are {channels} channels"
        raise InputError(
            f"{name} has {found.size} values; {wanted}",
            where=where,
            fix="give one value, or one for each channel where channels may differ",
        )
    return found.reshape(()) if found.size == 1 else found
