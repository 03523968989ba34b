"""Room for tiles: buffers that take turns, laid out one layer after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable

__all__ = ["Bench", "Buffers"]


class Buffers:
    """Equal buffers that take turns; what one holds is remembered.

    Parameters
    ----------
    addresses : list of int
        Where they begin.
    """

    def __init__(self, addresses: list[int]) -> None:
        self.addresses = addresses
        self._held: list[Hashable] = [None] * len(addresses)
        self._next = 0

    def get(self, key: Hashable, fill: Callable[[int], None]) -> int:
        """Give the buffer that holds a thing; fill the one whose turn it is if none does."""
        if key in self._held:
            return self.addresses[self._held.index(key)]
        address = self.turn()
        self._held[self._next - 1] = key
        fill(address)
        return address

    def turn(self) -> int:
        """Give the buffer whose turn it is."""
        at = self._next % len(self.addresses)
        self._next = at + 1
        self._held[at] = None
        return self.addresses[at]


class Bench:
    """A stretch of memory in which layers lay out their buffers, each behind the one before.

    So a layer's first loads find bytes that have not been used for the longest time, and need not
    wait for the layer before. At the end it goes on at the start.

    Parameters
    ----------
    grain : int
        Buffers begin at multiples of it (`tvmlab.npu.codegen.cuts.grain`), where there is room for
        that.
    """

    def __init__(self, grain: int) -> None:
        self._end, self._grain = 0, grain

    def lay_out(self, sizes: list[tuple[int, int]], limit: int) -> list[list[int]]:
        """Place buffers.

        Parameters
        ----------
        sizes : list of tuple
            Size and number of each group of buffers.
        limit : int
            Where the memory ends for this layer.

        Returns
        -------
        list of list of int
            The addresses of each group.
        """
        apart = [(-(-size // self._grain) * self._grain, count) for size, count in sizes]
        if _room(apart) <= limit:
            sizes = apart
        at = self._end if self._end + _room(sizes) <= limit else 0
        found = []
        for size, count in sizes:
            found.append([at + size * i for i in range(count)])
            at += size * count
        self._end = -(-at // self._grain) * self._grain
        return found


def _room(sizes: list[tuple[int, int]]) -> int:
    return sum(size * count for size, count in sizes)
