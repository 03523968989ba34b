"""Checks of scales and zero points.

A quantized tensor represents ``scale * (value - zero_point)``. A scale that is zero, negative or
not a number, or a zero point that no value can have, makes the results meaningless. The reference
arithmetic, legalization and the passes all refuse such a value with these checks.
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
    """Check a scale, and return it as an array of shape () or (channels,).

    As many values as there are `channels` are allowed beside one; None allows any number. The
    result is float32, because constants of Relay are; with `wide`, float64 arrays stay float64.
    `InputError` for a value that is no positive finite number, or for another number of values.
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


def product_scale(left: Array, right: Array, call: str) -> Array:
    """Multiply the scales of the two sides of a product, in their dtype, and check the result."""
    with np.errstate(over="ignore", under="ignore"):
        found = left * right
    return scale(found, call, "lhs_scale times rhs_scale", None)


def zero_point(
    value: npt.ArrayLike, call: str, name: str, dtype: str, channels: int | None = 1
) -> Array:
    """Check a zero point, and return it as an int64 array of shape () or (channels,).

    It must be a value of `dtype`, the dtype of its tensor; `channels` are as in `scale`.
    `InputError` for a value that is no integer of `dtype`, or for another number of values.
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
    """Return the least and the largest value of an integer dtype."""
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
