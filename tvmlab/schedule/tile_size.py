"""Choose the register tile of a contraction: pixels times vectors of channels.

For each step of the sum, a tile of ``p`` pixels and ``v`` vectors loads ``v`` vectors of weights,
broadcasts ``p`` numbers and does ``p * v`` multiply-adds, all of whose sums stay in registers.
The larger the tile, the fewer loads for the same arithmetic, until the registers are full (Goto
and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).

A tile is chosen when an operator is lowered to loops, because its constant weights are packed then.
Tuning measures other tiles; `Layouts` returns the better tiles that tuning found, per operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from .machine import Machine

#: Rows of a matrix to choose a tile for if their number is unknown: a multiple of all of `FEW`, and
#: the most rows of such a tile, because its code is written for each number of rows.
OPEN, FEW = 840, 8
# Channels of a tile if their number is unknown: wider tiles would compute more padding.
_OPEN_CHANNELS = 16

# Throughput per cycle of today's x86-64 and aarch64 cores, and the latency of a sum in cycles.
_FMAS, _LOADS, _LATENCY = 2, 2, 4
_MOST_VECTORS = 8
# An address's offset in its page determines which few lines of the L1 cache can hold it.
_WAYS, _PAGE = 16, 4096
# Bytes per cycle from the L2 cache, and how much of that time arithmetic does not hide.
_L2, _SEEN = 48, 0.25


@dataclass(frozen=True)
class Tile:
    """A register tile.

    Attributes
    ----------
    rows, columns : int
        Pixels of the output, downwards and across.
    channels : int
        Output channels: a multiple of the vector length.
    """

    rows: int
    columns: int
    channels: int

    def __str__(self) -> str:
        """Format the tile as pixels downwards, pixels across, channels."""
        return f"{self.rows}x{self.columns}x{self.channels}"

    def upright(self) -> Tile:
        """Return the tile of a column of pixels for one of a line."""
        return Tile(self.columns, self.rows, self.channels)

    @classmethod
    def ranked(
        cls,
        height: int,
        width: int,
        channels: int,
        steps: int,
        apart: int,
        dtype: str,
        machine: Machine,
    ) -> list[Tile]:
        """List the tiles for one image of a layer, those with the fewest estimated cycles first.

        Each output sums ``steps`` numbers, and the inputs of neighbouring pixels are ``apart``
        bytes apart.
        """
        lanes = machine.lanes(dtype)

        def cycles(tile: Tile) -> float:
            pixels, vectors = tile.rows * tile.columns, tile.channels // lanes
            tiles = (
                math.ceil(height / tile.rows)
                * math.ceil(width / tile.columns)
                * math.ceil(channels / tile.channels)
            )
            arithmetic = max(pixels * vectors / _FMAS, _LATENCY, pixels * machine.broadcasts)
            # Loads overlap with arithmetic, but not all of them.
            one = arithmetic + (pixels + vectors) / _LOADS / 4 + 1
            if steps * vectors * machine.vector_bytes > machine.l1:
                one += _SEEN * vectors * machine.vector_bytes / _L2
            # An image that the tile does not divide is copied, to be padded; results of padded
            # channels are not written; a tile of several rows touches more lines of the cache.
            uneven = int(bool(height % tile.rows or width % tile.columns))
            uneven += 2 * bool(channels % tile.channels)
            # Unknown numbers of rows are often multiples of `FEW`.
            odd = bool(width == OPEN and FEW % tile.columns)
            return tiles * one * (1 + 0.05 * uneven + 0.07 * odd + 0.02 * (tile.rows - 1))

        # Inputs whose distance is a multiple of a page compete for the same few L1 cache lines.
        most = _WAYS * (_PAGE // math.gcd(_PAGE, apart))

        candidates = [
            cls(rows, columns, vectors * lanes)
            for vectors in range(1, min(_MOST_VECTORS, math.ceil(channels / lanes)) + 1)
            for pixels in [min(most, max(1, (machine.registers - vectors - 2) // vectors))]
            for columns in range(1, min(width, pixels) + 1)
            for rows in range(1, min(height, pixels // columns) + 1)
            if width != OPEN or columns <= FEW
            if channels != OPEN or vectors * lanes <= max(lanes, _OPEN_CHANNELS)
        ]
        return sorted(candidates, key=cycles)

    @classmethod
    def choose(cls, *layer: Any, **more: Any) -> Tile:
        """Return the best tile for a layer: the first of `ranked`, with its parameters."""
        return cls.ranked(*layer, **more)[0]


def pixels_of_a_vector(width: int, taps: int, machine: Machine) -> int:
    """Choose the pixels across of a tile with one vector of channels, each with its own filter."""
    most = max(1, machine.registers - taps - 3)
    return min(range(1, min(width, most, 8) + 1), key=lambda n: -(-width // n) * (n + 1))


#: The annotation of a contraction that names its operator and shapes.
OPERATOR = "tvmlab.operator"


class Layouts:
    """The chosen register tile of each operator."""

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        self._chosen = dict(chosen or {})
        self.ranked: dict[str, tuple[Tile, ...]] = {}
        self.taken: dict[str, str] = {}

    def pick(self, operator: str, ranked: Sequence[Tile]) -> Tile:
        """Choose one of the tiles for an operator."""
        self.ranked[operator] = tuple(ranked)
        wanted = self._chosen.get(operator)
        for tile in ranked:
            if str(tile) == wanted:
                self.taken[operator] = wanted
                return tile
        return ranked[0]


def operators(func: tirx.PrimFunc) -> list[str]:
    """List the operators (`OPERATOR`) of a function whose weights' layout can be chosen."""
    named: list[str] = []

    def visit(block: s_tir.SBlock) -> None:
        if OPERATOR in block.annotations:
            named.append(str(block.annotations[OPERATOR]))

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    return named
