"""Products of integer matrices, exactly, with the speed of floats where they are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import Array

_EXACT = ((np.float32, 24), (np.float64, 53))


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

    Notes
    -----
    A float with a significand of p bits holds every integer up to 2**p, so a sum of k products that
    are at most ``2**p / k`` is exact in any order of adding.
    """
    largest = _largest(a) * _largest(b) * a.shape[-1]
    for kind, bits in _EXACT:
        if largest <= 1 << bits:
            found: Array = np.matmul(a.astype(kind), b.astype(kind)).astype(np.int64)
            return found
    wide: Array = np.matmul(a.astype(np.int64), b.astype(np.int64))
    return wide


def _largest(x: Array) -> Any:
    """Give the largest magnitude, as a Python int, which cannot overflow."""
    return max(int(x.max()), -int(x.min())) if x.size else 0
