"""The limits of this machine that a function's speed is held against."""

from __future__ import annotations

from functools import cache

from ...errors import InputError
from ..peak import peak_bandwidth, peak_flops

__all__ = ["bandwidth", "peak"]


@cache
def peak(dtype: str) -> float | None:
    """Give the arithmetic units' most, in operations a second; None for a dtype without a loop.

    It is measured when it is first asked for.
    """
    try:
        return peak_flops(dtype)
    except InputError:
        return None


@cache
def bandwidth() -> float:
    """Give memory's most, in bytes a second; it is measured when it is first asked for."""
    return peak_bandwidth()
