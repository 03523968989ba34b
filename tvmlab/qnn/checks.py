"""Checks of scales and zero points.

A quantized tensor represents ``scale * (value - zero_point)``. The reference arithmetic,
legalization and the passes all refuse invalid scales and zero points with these checks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..errors import InputError
from ..ir.types import Tensor, differ

Array = npt.NDArray[Any]


def scale(
    value: npt.ArrayLike, call: str, name: str, channels: int | None = 1, wide: bool = False
) -> Array:
    """Check a scale, and return it as an array of shape () or (channels,).

    None allows any number of channels. The result is float32; with `wide`, float64 stays float64.
    Raises `InputError` for a scale that is not positive and finite, or another number of values.
    """
    where = f"{call}, operand {name}"
    given = np.asarray(value)
    if given.dtype.kind not in "fiu":
        raise InputError(f"{name} has dtype {given.dtype}; it must be float32", where=where)
    keeps = wide and isinstance(value, (np.ndarray, np.generic)) and given.dtype == np.float64
    with np.errstate(over="ignore", under="ignore"):
        found = given if keeps else given.astype(np.float32)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        position = "" if found.ndim == 0 else f" at channel {int(np.flatnonzero(bad)[0])}"
        what = f"{name} is {given[bad].ravel()[0]}{position}"
        fix = "pass the range of the tensor's values, divided by the number of steps of its dtype"
        raise InputError(f"{what}; a scale is a finite float32 above zero", where=where, fix=fix)
    return _shaped(found, where, name, channels)


def zero_point(
    value: npt.ArrayLike, call: str, name: str, dtype: str, channels: int | None = 1
) -> Array:
    """Check a zero point, and return it as an int64 array of shape () or (channels,).

    Raises `InputError` for a value that `dtype` does not hold, or for another number of values.
    """
    where = f"{call}, operand {name}"
    given = np.asarray(value)
    if given.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {given.dtype}; it must be int32", where=where)
    found = given.astype(np.int64)
    if np.dtype(dtype).kind not in "iu":
        what = f"{name} belongs to a tensor of {dtype}, which is not an integer dtype"
        raise InputError(what, where=where, fix="quantize it first")
    low, high = limits(dtype)
    bad = (found < low) | (found > high)
    if bad.any():
        what = f"{name} is {int(found[bad].ravel()[0])}"
        raise InputError(f"{what}; values of {dtype} lie in {low} to {high}", where=where)
    return _shaped(found, where, name, channels)


def limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def parameter(
    operand: Tensor, dtype: str | Collection[str], channels: Any = 1, axis: int | None = None
) -> None:
    """Check that a scale or zero point is a scalar, or one value for each channel."""
    operand.holds((dtype,) if isinstance(dtype, str) else dtype)
    operand.rank(0, 1)
    length = operand.size(0)
    if length is not None and length != 1 and differ(length, channels):
        along = "" if axis is None else f" along axis {axis}"
        wanted = f"there are {channels} channels{along}"
        wanted = "a scalar is needed" if channels == 1 and axis is None else wanted
        fix = "give a scalar, or one value for each channel where channels may differ"
        fix += "" if axis is None else "; the axis is an argument of the call"
        raise operand.error(f"{operand.name} has {length} values; {wanted}", fix=fix)


def expression(call: str, name: str, value: Any) -> relax.Expr:
    """Check that an operand is an expression."""
    if isinstance(value, relax.Expr):
        return value
    fix = "give a variable or a constant"
    if isinstance(value, (int, float)):
        fix = f"give tvm.relax.const({value}, {'int32' if 'zero_point' in name else 'float32'!r})"
    what = f"{name} is of class {type(value).__name__}, not an expression"
    raise InputError(what, where=f"{call}, operand {name}", fix=fix)


def _shaped(found: Array, where: str, name: str, channels: int | None) -> Array:
    """Check for one value, or one per channel; one value in a vector is a scalar."""
    if found.ndim > 1:
        what = f"{name} has {found.ndim} dimensions; it must be one value, or one for each channel"
        raise InputError(what, where=where)
    if found.size != 1 and channels is not None and found.size != channels:
        wanted = "one value is needed" if channels == 1 else f"there are {channels} channels"
        fix = "give one value, or one for each channel where channels can differ"
        raise InputError(f"{name} has {found.size} values; {wanted}", where=where, fix=fix)
    return found.reshape(()) if found.size == 1 else found
