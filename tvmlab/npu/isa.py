"""The accelerator's instructions: their fields, units and encoding.

An instruction is a row of 32-bit words: its opcode, the number of the layer that it belongs to, for
reports, then its fields in the order of the class. Addresses are bytes in SRAM; `sums` are indices
of accumulators. Sizes count elements unless they say bytes. An image in SRAM is a *view*: an
address, and the bytes from a row and from a pixel to the next; the channels of a pixel lie side by
side. An instruction counts as reading the whole view. Results appear pixel by pixel, after tables
have been read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

#: The least and the greatest int32.
INT32 = (-(1 << 31), (1 << 31) - 1)


class Unit(IntEnum):
    """What executes an instruction; units work at once, an instruction of `ALL` waits for them."""

    DMA, ARRAY, VECTOR, ALL = range(4)


class Dtype(IntEnum):
    """Types of numbers in memory: `int8`, `uint8`, `int16` and `int32`."""

    int8, uint8, int16, int32 = range(4)

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return (1, 1, 2, 4)[self]


class Rounding(IntEnum):
    """How the vector unit multiplies an integer by a real number.

    `ONNX` multiplies in float32 and rounds half to even, `TFLITE_FLOAT64` in float64 and half away
    from zero; the others have a multiplier of 31 bits and a shift (`tvmlab.qnn.fixed_point`).
    """

    NONE, UPWARD, TONEAREST, TFLITE, ONNX, TFLITE_FLOAT64 = range(6)


class PoolKind(IntEnum):
    """How a window is pooled.

    `AVERAGE` truncates the average of the stored integers; `AVERAGE_HALF` rounds half away from
    zero. `AVERAGE_TFLITE` and `AVERAGE_ONNX` average between two scales (`average_once` and
    `average` in `tvmlab.qnn.frameworks`); `AVERAGE_ONNX` sums float32, row by row.
    """

    MAX, AVERAGE, AVERAGE_HALF, AVERAGE_TFLITE, AVERAGE_ONNX = range(5)


class Instruction:
    """One instruction; its fields are integers, given by place or by name, `layer` first."""

    opcode: ClassVar[int]
    unit: ClassVar[Unit]
    names: ClassVar[tuple[str, ...]]

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init__(self, *values: int, **named: int) -> None: ...
        def __getattr__(self, name: str) -> int: ...

    def __init_subclass__(cls, unit: Unit, names: str = "") -> None:
        cls.unit, cls.names = unit, ("layer", *names.split())
        cls.opcode = len(INSTRUCTIONS) + 1
        cls.__annotations__ = dict.fromkeys(cls.names, int)
        INSTRUCTIONS[cls.opcode] = dataclass(frozen=True)(cls)

    def words(self) -> list[int]:
        """Encode the instruction: opcode, layer and the other fields, each a word of 32 bits."""
        return [self.opcode, *(int(getattr(self, name)) for name in self.names)]


#: The classes of instructions, by opcode.
INSTRUCTIONS: dict[int, type[Instruction]] = {}

_BOX = """
    tensor offset address element count0 count1 count2 count3 dram0 dram1 dram2 dram3
    sram0 sram1 sram2 sram3
"""
_CONVOLUTION = """
    address row_stride pixel_stride in_dtype in_rows in_cols channels pad_top pad_left pad_value
    weights kernel_h kernel_w stride_h stride_w dilation_h dilation_w out_rows out_cols
    out_channels sums bias
"""
_REQUANTIZE = """
    sums rows cols channels sum_low sum_high rounding multipliers shifts per_channel zero_point
    low high address row_stride pixel_stride out_dtype
"""
_ADD = """
    rows cols channels
    lhs_address lhs_row_stride lhs_pixel_stride lhs_dtype
    lhs_zero lhs_rounding lhs_multiplier lhs_shift
    rhs_address rhs_row_stride rhs_pixel_stride rhs_dtype
    rhs_zero rhs_rounding rhs_multiplier rhs_shift
    left_shift out_rounding out_multiplier out_shift out_zero low high
    out_address out_row_stride out_pixel_stride out_dtype
"""
_POOL = """
    kind address row_stride pixel_stride dtype in_rows in_cols channels
    kernel_h kernel_w stride_h stride_w dilation_h dilation_w
    pad_top pad_left pad_bottom pad_right count_pad in_zero out_zero multiplier shift
    out_rows out_cols out_address out_row_stride out_pixel_stride
"""
_SUM = "address row_stride pixel_stride dtype rows cols channels low start accumulate sums"


class Load(Instruction, unit=Unit.DMA, names=_BOX):
    """Copy a box of up to four dimensions from a tensor in DRAM to the SRAM.

    The box begins `offset` bytes into the tensor of number `tensor`, and at `address` in SRAM.
    Numbers of `element` bytes (1, 2, 4 or 8) stay together; `count0` to `count3` of them lie along
    each dimension, the outermost first, `dram0`... and `sram0`... bytes from one to the next.
    """


class Store(Instruction, unit=Unit.DMA, names=_BOX):
    """Copy a box from SRAM to DRAM, not to constants or inputs; fields as in `Load`."""


class Matmul(Instruction, unit=Unit.ARRAY, names=_CONVOLUTION):
    """Convolve a tile of an image on the array; sums wrap in int32.

    Output pixel ``(y, x)`` takes from tap ``(i, j)`` of the kernel the input pixel
    ``(y * stride_h + i * dilation_h - pad_top, x * stride_w + j * dilation_w - pad_left)``, or
    `pad_value` where that is outside of ``in_rows`` x ``in_cols``. Data are int8 or uint8
    (`in_dtype`). `weights` is the address of int8 [ceil(out_channels / columns), kernel_h,
    kernel_w, channels, columns], `sums` the first accumulator of the result [out_rows, out_cols,
    out_channels], `bias` the address of int32 [out_channels] to begin with; -1 adds to what the
    accumulators hold.
    """


class Depthwise(Instruction, unit=Unit.VECTOR, names=_CONVOLUTION + " weight_dtype"):
    """Convolve each channel by itself, on the vector unit; sums wrap in int32.

    Fields as in `Matmul`, and `weight_dtype`: int8 or int16. The weights are [kernel_h, kernel_w,
    channels], and out_channels is channels.
    """


class Requantize(Instruction, unit=Unit.VECTOR, names=_REQUANTIZE):
    """Bring sums to a scale: accumulators to a view in SRAM of int8, uint8 or int32.

    ``clip(round(clip(sum, sum_low, sum_high) * multiplier) + zero_point, low, high)``.
    `multipliers` is the address of int32 (float32 with `Rounding.ONNX`, float64 with
    `TFLITE_FLOAT64`), `shifts` that of int32, which the ways in float do not read: one for each
    channel if `per_channel` is 1, else one. In int32 the integer ways wrap before they clip.
    """


class Add(Instruction, unit=Unit.VECTOR, names=_ADD):
    """Add two views, or rescale one where ``rhs_address`` is -1; all are [rows, cols, channels].

    Integer ways: each side becomes ``round(((x - zero) << left_shift) * multiplier)``, wrapping in
    int32 as requantize does; their sum wraps in int32 and is rounded once more:
    ``clip(round(sum * out_multiplier) + out_zero, low, high)``.

    With `out_rounding` ONNX the multipliers are bits of float32 numbers: the ratios of the sides'
    scales to the result's, and `common` (`tvmlab.qnn.frameworks.fixed_part`). ``rhs * rhs_ratio +
    common``, then ``lhs * lhs_ratio +`` that, are rounded once each, then half to even.
    """


class Pool(Instruction, unit=Unit.VECTOR, names=_POOL):
    """Pool windows of a tile; the window's fields are those of a convolution.

    A place outside of the tile counts nothing; the kinds of `AVERAGE` count it where it is in the
    padding and `count_pad` is 1: rows below ``in_rows + pad_bottom`` and columns below
    ``in_cols + pad_right``. The padding of `AVERAGE` and `AVERAGE_HALF` is out_zero. A window of
    nothing is the lowest number (`MAX`) or out_zero. `multiplier` and `shift` are the results of
    `frameworks.average_parts` in `AVERAGE_TFLITE`, the bits of both scales in `AVERAGE_ONNX`.
    """


class Sum(Instruction, unit=Unit.VECTOR, names=_SUM):
    """Sum each channel of a tile over its pixels into accumulators; sums wrap in int32.

    Numbers below `low` count as it: a rectifier, or the dtype's least number. Sums begin with
    `start` where `accumulate` is 0; else they are added to. `sums` is the first of [channels].
    """


class Sync(Instruction, unit=Unit.ALL):
    """Wait until all units have done all instructions before it."""
