"""Copies within DRAM, through the SRAM: a reshape that changes the order, an input handed on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..isa import Instruction, Load, Store

__all__ = ["Strided", "contiguous", "copy"]


@dataclass(frozen=True)
class Strided:
    """A tensor in DRAM seen along some dimensions: its number and bytes from one to the next."""

    tensor: int
    strides: tuple[int, ...]


def contiguous(shape: tuple[int, ...], each: int) -> tuple[int, ...]:
    """Give the strides of numbers that lie one after the other, the last dimension inmost."""
    return tuple(each * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def copy(
    layer: int, shape: tuple[int, ...], each: int, source: Strided, to: Strided, room: int
) -> Iterator[Instruction]:
    """Copy a tensor.

    Parameters
    ----------
    layer : int
        The layer's number.
    shape : tuple of int
        Up to four dimensions.
    each : int
        Bytes of a number.
    source, to : Strided
        Where from and where to.
    room : int
        Bytes of SRAM, from address 0; at least 16.

    Yields
    ------
    Instruction
        Loads and stores.
    """
    fill = 4 - len(shape)
    shape = (1,) * fill + shape
    strides = [(0,) * fill + side.strides for side in (source, to)]
    half = room // 2 // 8 * 8
    box = _box(shape, half // each)
    places = product(*(range(0, size, part) for size, part in zip(shape, box, strict=True)))
    for i, place in enumerate(places):
        counts = tuple(
            min(part, size - at) for part, size, at in zip(box, shape, place, strict=True)
        )
        for kind, side, along in zip((Load, Store), (source, to), strides, strict=True):
            offset = sum(at * stride for at, stride in zip(place, along, strict=True))
            inside = contiguous(counts, each)
            address = i % 2 * half
            yield kind(layer, side.tensor, offset, address, each, *counts, *along, *inside)


def _box(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Give the largest box of at most so many numbers that leaves the inner dimensions whole."""
    box: list[int] = []
    for size in reversed(shape):
        part = max(1, min(size, most))
        box.append(part)
        most = most // part if part == size else 1
    return tuple(reversed(box))
