"""Sums of products of integers, exactly, with the speed of floats where they are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.checks import Array

_EXACT = ((np.float32, 24), (np.float64, 53))


def exact(a: Array, b: Array, terms: int) -> tuple[Array, Array]:
    """Bring integers to the fastest dtype in which sums of their products are exact.

    Parameters
    ----------
    a, b : numpy.ndarray
        Integers, any shapes.
    terms : int
        How many products of a value of `a` and one of `b` are added up at most.

    Returns
    -------
    tuple of (numpy.ndarray, numpy.ndarray)
        Both as float32, float64 or int64.

    Notes
    -----
    A float with a significand of p bits holds every integer up to 2**p, so a sum of k products of
    which each is at most ``2**p / k`` is exact, in any order of adding. Sums in int64 wrap.
    """
    largest = _largest(a) * _largest(b) * terms
    kind = next((kind for kind, bits in _EXACT if largest <= 1 << bits), np.int64)
    return a.astype(kind), b.astype(kind)


def matmul(a: Array, b: Array) -> Array:
    """Multiply matrices of integers, or batches of them.

    Parameters
    ----------
    a, b : numpy.ndarray
        Shapes (..., m, k) and (..., k, n), integers.

    Returns
    -------
    numpy.ndarray
        Shape (..., m, n), int64.
    """
    found: Array = np.matmul(*exact(a, b, a.shape[-1])).astype(np.int64)
    return found


def _largest(x: Array) -> Any:
    """Give the largest magnitude, as a Python int, which cannot overflow."""
    return max(int(x.max()), -int(x.min())) if x.size else 0
