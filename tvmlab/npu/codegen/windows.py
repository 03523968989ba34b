"""Which rows or columns of an image a tile of a windowed layer needs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Span", "span"]


@dataclass(frozen=True)
class Span:
    """A stretch of rows or columns.

    Attributes
    ----------
    first, size : int
        What to read of the image.
    pad : int
        How many places before it the first window begins.
    """

    first: int
    size: int
    pad: int


def span(first: int, count: int, length: int, reach: int, stride: int, pad: int) -> Span:
    """Give what some windows side by side need.

    Parameters
    ----------
    first, count : int
        Which windows.
    length : int
        Rows or columns of the image.
    reach, stride, pad : int
        Of the window; `pad` in front of the image.
    """
    start = first * stride - pad
    end = start + (count - 1) * stride + reach
    low, high = max(start, 0), min(end, length)
    if low >= high:
        # All windows lie in the padding. An instruction reads something all the same: the first
        # row, put behind the last window.
        return Span(0, 1, end - start)
    return Span(low, high - low, low - start)
