"""The constants of a program: tables and weights of a tile side by side, as its units read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..isa import Rounding
from ..layers import Array, Convolution, Rescale
from .cuts import ALIGNMENT

__all__ = ["Block", "Constants", "Tables", "depthwise_weights", "matmul_weights", "tables"]


@dataclass(frozen=True)
class Block:
    """A place among the constants: its start and its size in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Tables:
    """Where the tables of a tile begin, counted from the start of its block.

    Attributes
    ----------
    multipliers, bias, shifts, weights : int
        Offsets in bytes.
    data : bytes
        The tables.
    """

    multipliers: int
    bias: int
    shifts: int
    weights: int
    data: bytes


class Constants:
    """The constants of a program, as they grow."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, data: bytes) -> Block:
        """Append bytes, aligned."""
        self.data += bytes(-len(self.data) % ALIGNMENT)
        block = Block(len(self.data), len(data))
        self.data += data
        return block


def tables(rescale: Rescale, bias: Array | None, first: int, count: int) -> Tables:
    """Lay out the tables of some channels: multipliers, bias, shifts.

    Parameters
    ----------
    rescale : Rescale
        The layer's.
    bias : numpy.ndarray or None
        int32, of all channels.
    first, count : int
        The channels.
    """

    def part(table: Array) -> bytes:
        cut = table[first : first + count] if table.size > 1 else table
        return cut.astype(cut.dtype.newbyteorder("<")).tobytes()

    none = rescale.rounding is Rounding.NONE
    multipliers = b"" if none else part(rescale.multipliers)
    shifts = b"" if none else part(rescale.shifts)
    # A layer of one channel has a bias of one number too, which is not for all.
    biases = b"" if bias is None else bias[first : first + count].astype("<i4").tobytes()
    at = len(multipliers)
    data = multipliers + biases + shifts
    return Tables(0, at, at + len(biases), len(data), data)


def matmul_weights(
    weights: Array, inputs: tuple[int, int], outputs: tuple[int, int], columns: int
) -> bytes:
    """Lay out weights as the array takes them.

    Parameters
    ----------
    weights : numpy.ndarray
        int8 [kernel_h, kernel_w, channels, out_channels].
    inputs, outputs : tuple of int
        First channel and number of channels.
    columns : int
        Of the array.

    Returns
    -------
    bytes
        int8 [blocks, kernel_h, kernel_w, inputs, columns], zeros where a block is not full.
    """
    (first, depth), (start, count) = inputs, outputs
    part = weights[:, :, first : first + depth, start : start + count]
    blocks = -(-count // columns)
    full = np.zeros((*part.shape[:3], blocks * columns), np.int8)
    full[..., :count] = part
    return full.reshape(*part.shape[:3], blocks, columns).transpose(3, 0, 1, 2, 4).tobytes()


def depthwise_weights(layer: Convolution, first: int, count: int) -> bytes:
    """Lay out weights as the vector unit takes them: [kernel_h, kernel_w, channels]."""
    part = layer.weights[:, :, first : first + count]
    return np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"))).tobytes()
