"""The accelerator's instructions: their fields, units and encoding.

An instruction is a row of 32-bit words: its opcode, the number of the layer that it works for (so
that reports can say where the time goes), then its fields in the order of the class. Addresses are
bytes in SRAM; `sums` are places among the accumulators. Every size counts elements unless it says
bytes. An image in SRAM is a *view*: an address, the bytes from a row to the next and from a pixel
to the next; the channels of a pixel lie side by side. Results appear pixel by pixel, after tables
have been read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .codes import Dtype, Instruction, PoolKind, Rounding, Unit, names

__all__ = [
    "INSTRUCTIONS",
    "Add",
    "Depthwise",
    "Dtype",
    "Instruction",
    "Load",
    "Matmul",
    "Pool",
    "PoolKind",
    "Requantize",
    "Rounding",
    "Store",
    "Sum",
    "Sync",
    "Transfer",
    "Unit",
    "Window",
    "names",
]


@dataclass(frozen=True, slots=True)
class Transfer(Instruction):
    """A box of up to four dimensions between a tensor in DRAM and the SRAM.

    Attributes
    ----------
    tensor : int
        The number of the tensor in the program's table.
    offset : int
        Bytes from its start to the box.
    address : int
        Where the box begins in SRAM.
    element : int
        Bytes of a number: 1, 2, 4 or 8. They stay together.
    count0..count3 : int
        Numbers along each dimension, the outermost first.
    dram0..dram3, sram0..sram3 : int
        Bytes from a number to the next along each dimension. Not negative.
    """

    tensor: int
    offset: int
    address: int
    element: int
    count0: int
    count1: int
    count2: int
    count3: int
    dram0: int
    dram1: int
    dram2: int
    dram3: int
    sram0: int
    sram1: int
    sram2: int
    sram3: int


@dataclass(frozen=True, slots=True)
class Load(Transfer):
    """Copy a box from DRAM to SRAM; the fields are those of `Transfer`."""

    opcode: ClassVar[int] = 1
    unit: ClassVar[Unit] = Unit.DMA


@dataclass(frozen=True, slots=True)
class Store(Transfer):
    """Copy a box from SRAM to DRAM, not to constants or inputs.

    The fields are those of `Transfer`.
    """

    opcode: ClassVar[int] = 2
    unit: ClassVar[Unit] = Unit.DMA


@dataclass(frozen=True, slots=True)
class Window(Instruction):
    """A convolution over a tile of an image.

    Output pixel ``(y, x)`` takes from tap ``(i, j)`` of the kernel the input pixel
    ``(y * stride_h + i * dilation_h - pad_top, x * stride_w + j * dilation_w - pad_left)``, or
    `pad_value` where that is outside of ``in_rows`` x ``in_cols``.

    Attributes
    ----------
    address, row_stride, pixel_stride : int
        The view of the input tile.
    in_dtype : Dtype
        int8 or uint8.
    in_rows, in_cols, channels : int
        Its size.
    pad_top, pad_left, pad_value : int
        See above.
    weights : int
        Address of the weights.
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w : int
        The window.
    out_rows, out_cols, out_channels : int
        Size of the result.
    sums : int
        The first accumulator of the result, [out_rows, out_cols, out_channels].
    bias : int
        Address of int32 [out_channels] to begin with; -1 adds to what the accumulators hold.
    """

    address: int
    row_stride: int
    pixel_stride: int
    in_dtype: int
    in_rows: int
    in_cols: int
    channels: int
    pad_top: int
    pad_left: int
    pad_value: int
    weights: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    out_rows: int
    out_cols: int
    out_channels: int
    sums: int
    bias: int


@dataclass(frozen=True, slots=True)
class Matmul(Window):
    """Convolve on the array; sums wrap in int32. The fields are those of `Window`.

    The weights are int8 [ceil(out_channels / columns), kernel_h, kernel_w, channels, columns].
    """

    opcode: ClassVar[int] = 3
    unit: ClassVar[Unit] = Unit.ARRAY


@dataclass(frozen=True, slots=True)
class Depthwise(Window):
    """Convolve each channel by itself, on the vector unit; sums wrap in int32.

    The fields are those of `Window`, and one more. The weights are [kernel_h, kernel_w, channels],
    and out_channels is channels.

    Attributes
    ----------
    weight_dtype : Dtype
        int8 or int16.
    """

    weight_dtype: int

    opcode: ClassVar[int] = 4
    unit: ClassVar[Unit] = Unit.VECTOR


@dataclass(frozen=True, slots=True)
class Requantize(Instruction):
    """Bring sums to a scale: accumulators to a view in SRAM.

    ``clip(round(clip(sum, sum_low, sum_high) * multiplier) + zero_point, low, high)``.

    Attributes
    ----------
    sums : int
        The first accumulator, [rows, cols, channels].
    rows, cols, channels : int
        The size.
    sum_low, sum_high : int
        What sums are clipped to first.
    rounding : Rounding
        How. With `NONE` the sum is not multiplied.
    multipliers : int
        Address of int32, of float32 with `ONNX`, of float64 with `TFLITE_FLOAT64`.
    shifts : int
        Address of int32; not read by the ways in float.
    per_channel : int
        1: one multiplier and shift for each channel; 0: one for all.
    zero_point, low, high : int
        See above. In int32 the integer ways wrap before they clip; the ways in float saturate.
    address, row_stride, pixel_stride : int
        The view to write.
    out_dtype : Dtype
        int8, uint8 or int32.
    """

    sums: int
    rows: int
    cols: int
    channels: int
    sum_low: int
    sum_high: int
    rounding: int
    multipliers: int
    shifts: int
    per_channel: int
    zero_point: int
    low: int
    high: int
    address: int
    row_stride: int
    pixel_stride: int
    out_dtype: int

    opcode: ClassVar[int] = 5
    unit: ClassVar[Unit] = Unit.VECTOR


@dataclass(frozen=True, slots=True)
class Add(Instruction):
    """Add two views, or rescale one.

    Integer ways: each side becomes ``round(((x - zero) << left_shift) * multiplier)``, wrapping in
    int32 as requantize does; their sum wraps in int32 and is rounded once more:
    ``clip(round(sum * out_multiplier) + out_zero, low, high)``.

    With `out_rounding` ONNX the three multipliers are bits of float32 numbers: the ratios of the
    sides' scales to the result's, and what the sums have in common
    (`tvmlab.qnn.arithmetic.add`): ``rhs * rhs_ratio + common``, then
    ``lhs * lhs_ratio +`` that, both rounded once, then to the nearest integer, half to even. The
    sides' zero points are in what the sums have in common: their own fields are not read, nor are
    their roundings and shifts.

    Attributes
    ----------
    rows, cols, channels : int
        The size of all three views.
    lhs, rhs, out : view
        ``rhs_address`` -1: there is no right side.
    """

    rows: int
    cols: int
    channels: int
    lhs_address: int
    lhs_row_stride: int
    lhs_pixel_stride: int
    lhs_dtype: int
    lhs_zero: int
    lhs_rounding: int
    lhs_multiplier: int
    lhs_shift: int
    rhs_address: int
    rhs_row_stride: int
    rhs_pixel_stride: int
    rhs_dtype: int
    rhs_zero: int
    rhs_rounding: int
    rhs_multiplier: int
    rhs_shift: int
    left_shift: int
    out_rounding: int
    out_multiplier: int
    out_shift: int
    out_zero: int
    low: int
    high: int
    out_address: int
    out_row_stride: int
    out_pixel_stride: int
    out_dtype: int

    opcode: ClassVar[int] = 6
    unit: ClassVar[Unit] = Unit.VECTOR


@dataclass(frozen=True, slots=True)
class Pool(Instruction):
    """Pool windows of a tile; the window's fields are those of a convolution.

    A place outside of the tile counts nothing; the kinds of `AVERAGE` count it where it is in the
    padding and `count_pad` is 1: rows below ``in_rows + pad_bottom`` and columns below
    ``in_cols + pad_right``.
    The padding of `AVERAGE` and `AVERAGE_HALF` is out_zero. A window of nothing is the lowest
    number (`MAX`) or out_zero.

    Attributes
    ----------
    in_zero, multiplier, shift : int
        `AVERAGE_TFLITE`: the data's zero point, `multiplier` and `exponent` of
        `frameworks.average_parts`. `AVERAGE_ONNX`: the zero point, and the bits of the data's scale
        and of the result's (float32).
    """

    kind: int
    address: int
    row_stride: int
    pixel_stride: int
    dtype: int
    in_rows: int
    in_cols: int
    channels: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    count_pad: int
    in_zero: int
    out_zero: int
    multiplier: int
    shift: int
    out_rows: int
    out_cols: int
    out_address: int
    out_row_stride: int
    out_pixel_stride: int

    opcode: ClassVar[int] = 7
    unit: ClassVar[Unit] = Unit.VECTOR


@dataclass(frozen=True, slots=True)
class Sum(Instruction):
    """Sum each channel of a tile over its pixels into accumulators; sums wrap in int32.

    Attributes
    ----------
    low : int
        Numbers below it count as it: a rectifier, or the dtype's least number.
    start : int
        What the sums begin with, where `accumulate` is 0; else they are added to.
    sums : int
        The first accumulator, [channels].
    """

    address: int
    row_stride: int
    pixel_stride: int
    dtype: int
    rows: int
    cols: int
    channels: int
    low: int
    start: int
    accumulate: int
    sums: int

    opcode: ClassVar[int] = 8
    unit: ClassVar[Unit] = Unit.VECTOR


@dataclass(frozen=True, slots=True)
class Sync(Instruction):
    """Wait until all units have done all instructions before it."""

    opcode: ClassVar[int] = 9
    unit: ClassVar[Unit] = Unit.ALL


#: The classes of instructions, by opcode.
INSTRUCTIONS: dict[int, type[Instruction]] = {
    kind.opcode: kind for kind in (Load, Store, Matmul, Depthwise, Requantize, Add, Pool, Sum, Sync)
}
