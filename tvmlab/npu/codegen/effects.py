"""What memory an instruction reads and writes: stretches from the first byte to the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .. import isa
from ..isa import Dtype, Instruction, Rounding

__all__ = ["ACCUMULATORS", "DRAM", "SRAM", "Effect", "effects"]

SRAM, ACCUMULATORS, DRAM = 0, 1, 2
"""Numbers of the memories; tensors in DRAM follow from `DRAM` on, in the order of their table."""


class Effect(NamedTuple):
    """A stretch of a memory, in bytes, that is read or written."""

    memory: int
    start: int
    end: int
    writes: bool


def effects(one: Instruction, columns: int) -> Iterator[Effect]:
    """Give what an instruction reads and writes; what lies between the pixels of a view included.

    Parameters
    ----------
    one : Instruction
        Any but `Sync`.
    columns : int
        Of the array: its weights come in blocks of so many output channels.

    Yields
    ------
    Effect
        At least one.
    """
    match one:
        case isa.Load() | isa.Store():
            store = isinstance(one, isa.Store)
            dram, sram = _reaches(one)
            yield Effect(DRAM + one.tensor, one.offset, one.offset + dram, store)
            yield Effect(SRAM, one.address, one.address + sram, not store)
        case isa.Matmul() | isa.Depthwise():
            yield _view(one.address, one.in_rows, one.in_cols, one, one.channels, one.in_dtype)
            yield from _convolution(one, columns)
        case isa.Requantize():
            count = one.rows * one.cols * one.channels
            yield Effect(ACCUMULATORS, 4 * one.sums, 4 * (one.sums + count), False)
            yield from _tables(one)
            rows, cols = one.rows, one.cols
            yield _view(one.address, rows, cols, one, one.channels, one.out_dtype, writes=True)
        case isa.Add():
            yield from _sides(one)
        case isa.Pool():
            yield _view(one.address, one.in_rows, one.in_cols, one, one.channels, one.dtype)
            down, across = one.out_row_stride, one.out_pixel_stride
            size = (one.out_rows - 1) * down + (one.out_cols - 1) * across
            size += one.channels * Dtype(one.dtype).bytes
            yield Effect(SRAM, one.out_address, one.out_address + size, True)
        case isa.Sum():
            yield _view(one.address, one.rows, one.cols, one, one.channels, one.dtype)
            yield Effect(ACCUMULATORS, 4 * one.sums, 4 * (one.sums + one.channels), True)


def _reaches(one: isa.Load | isa.Store) -> tuple[int, int]:
    """Give the bytes from the first to the last, in DRAM and in SRAM."""
    last = [one.count0 - 1, one.count1 - 1, one.count2 - 1, one.count3 - 1]
    dram = (one.dram0, one.dram1, one.dram2, one.dram3)
    sram = (one.sram0, one.sram1, one.sram2, one.sram3)
    return (
        sum(a * b for a, b in zip(last, dram, strict=True)) + one.element,
        sum(a * b for a, b in zip(last, sram, strict=True)) + one.element,
    )


def _view(
    address: int,
    rows: int,
    cols: int,
    one: isa.Matmul | isa.Depthwise | isa.Requantize | isa.Pool | isa.Sum,
    channels: int,
    dtype: int,
    *,
    writes: bool = False,
) -> Effect:
    size = (rows - 1) * one.row_stride + (cols - 1) * one.pixel_stride
    return Effect(SRAM, address, address + size + channels * Dtype(dtype).bytes, writes)


def _convolution(one: isa.Matmul | isa.Depthwise, columns: int) -> Iterator[Effect]:
    if isinstance(one, isa.Depthwise):
        each = Dtype(one.weight_dtype).bytes
    else:
        each = -(-one.out_channels // columns) * columns
    size = one.kernel_h * one.kernel_w * one.channels * each
    yield Effect(SRAM, one.weights, one.weights + size, False)
    if one.bias >= 0:
        yield Effect(SRAM, one.bias, one.bias + 4 * one.out_channels, False)
    count = one.out_rows * one.out_cols * one.out_channels
    yield Effect(ACCUMULATORS, 4 * one.sums, 4 * (one.sums + count), True)


def _tables(one: isa.Requantize) -> Iterator[Effect]:
    if one.rounding == Rounding.NONE:
        return
    count = one.channels if one.per_channel else 1
    each = 8 if one.rounding == Rounding.TFLITE_FLOAT64 else 4
    yield Effect(SRAM, one.multipliers, one.multipliers + each * count, False)
    if one.rounding not in (Rounding.ONNX, Rounding.TFLITE_FLOAT64):
        yield Effect(SRAM, one.shifts, one.shifts + 4 * count, False)


def _sides(one: isa.Add) -> Iterator[Effect]:
    for side, writes in (("lhs", False), ("rhs", False), ("out", True)):
        address = getattr(one, f"{side}_address")
        if address < 0:
            continue
        size = (one.rows - 1) * getattr(one, f"{side}_row_stride")
        size += (one.cols - 1) * getattr(one, f"{side}_pixel_stride")
        size += one.channels * Dtype(getattr(one, f"{side}_dtype")).bytes
        yield Effect(SRAM, address, address + size, writes)
