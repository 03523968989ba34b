"""Which register tile the weights of an operator are packed for, and who may choose another.

A tile is chosen when an operator becomes loops, for its constant weights are packed then: what
follows, fusion and schedules, finds them so. Tuning measures other tiles; what it found better is
given back here, operator by operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm_ffi
from tvm import s_tir, tirx

from .tile import Tile

__all__ = ["OPERATOR", "Layouts", "operators"]

#: The annotation of a contraction that names its operator and shapes.
OPERATOR = "tvmlab.operator"


class Layouts:
    """A choice of register tiles."""

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
