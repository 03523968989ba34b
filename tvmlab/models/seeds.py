"""Random float32 arrays that have the same bytes on every machine.

NumPy promises that a bit generator's raw output never changes; it does not promise so for what
`Generator` makes of it, and a normal sampler calls the machine's own `log`. So the numbers here
come from raw bits through integer arithmetic and one rounding, and from nothing else.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["normal", "permutation", "uniform"]

# The standard deviation of the sum of four numbers drawn evenly from 0 ... 65535.
_STD_OF_FOUR = math.sqrt(4 * (65536**2 - 1) / 12)


def normal(
    source: np.random.PCG64, shape: tuple[int, ...], std: float, *, centred: bool
) -> npt.NDArray[np.float32]:
    """Nearly normal numbers around zero: each is the sum of four uniform ones.

    The sum of four is an approximation: it has no tails beyond 3.5 standard deviations.

    Parameters
    ----------
    source : numpy.random.PCG64
        Where the bits come from.
    shape : tuple of int
        The array's shape.
    std : float
        The numbers' standard deviation.
    centred : bool
        True makes the sum over each `array[i]` zero, up to rounding.

    Returns
    -------
    ndarray
        float32.
    """
    bits = source.random_raw(math.prod(shape))
    # Each 64 bits hold four numbers; two of them at a time are added in the halves of a word.
    pairs = np.uint64(0x0000FFFF0000FFFF)
    sums = ((bits >> np.uint64(16)) & pairs) + (bits & pairs)
    halves = sums.view(np.uint32).reshape(shape[0], -1, 2)
    numbers = (halves[..., 0] + halves[..., 1]).astype(np.int32)
    if centred:
        # The integer sum is exact in any order of addition; a float sum would not be.
        numbers -= (numbers.sum(axis=1, keepdims=True, dtype=np.int64) // numbers.shape[1]).astype(
            np.int32
        )
    else:
        numbers -= 2 * 65535
    factor = np.float32(std / _STD_OF_FOUR)
    return (numbers.astype(np.float32) * factor).reshape(shape)


def uniform(
    source: np.random.PCG64, shape: tuple[int, ...], low: float, high: float
) -> npt.NDArray[np.float32]:
    """Uniform numbers between two bounds.

    Parameters
    ----------
    source : numpy.random.PCG64
        Where the bits come from.
    shape : tuple of int
        The array's shape.
    low, high : float
        The bounds.

    Returns
    -------
    ndarray
        float32.
    """
    bits = source.random_raw(math.prod(shape)) >> np.uint64(11)
    return (low + (high - low) * (bits * 2.0**-53)).astype(np.float32).reshape(shape)


def permutation(source: np.random.PCG64, count: int) -> npt.NDArray[np.int64]:
    """The numbers 0 to `count - 1` in a random order.

    Parameters
    ----------
    source : numpy.random.PCG64
        Where the bits come from.
    count : int
        How many.

    Returns
    -------
    ndarray
        int64.
    """
    return np.argsort(source.random_raw(count), kind="stable").astype(np.int64)
