"""The accelerator's instructions: their fields, units and encoding.

An instruction is a row of 32-bit words: its opcode, the number of its layer (for reports), then
its fields in the order of the class. Addresses are bytes in SRAM; `sums` are indices of
accumulators. Sizes count elements unless stated in bytes. An image in SRAM is a *view*: an address,
the distance in bytes between rows, and the distance between pixels; the channels of a pixel are
contiguous. An instruction counts as reading the whole view. The first results appear after the
tables have been read, and are written pixel by pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

#: The range of int32.
INT32 = (-(1 << 31), (1 << 31) - 1)


class Unit(IntEnum):
    """The unit that executes an instruction; units work in parallel, `ALL` waits for them."""

    DMA, ARRAY, VECTOR, ALL = range(4)


class Dtype(IntEnum):
    """Types of numbers in memory: `int8`, `uint8`, `int16` and `int32`."""

    int8, uint8, int16, int32 = range(4)

    @property
    def bytes(self) -> int:
        """Size of a number in bytes."""
        return (1, 1, 2, 4)[self]


class Rounding(IntEnum):
    """The vector unit's method to multiply an integer by a real number and round.

    `ONNX` multiplies in float32 and rounds half to even. `TFLITE_FLOAT64` multiplies in float64 and
    rounds half away from zero. The others use a 31-bit multiplier and a shift
    (`tvmlab.qnn.fixed_point`).
    """

    NONE, UPWARD, TONEAREST, TFLITE, ONNX, TFLITE_FLOAT64 = range(6)


class PoolKind(IntEnum):
    """The reduction of a pooling window.

    `AVERAGE` truncates the average of the stored integers; `AVERAGE_HALF` rounds half away from
    zero. `AVERAGE_TFLITE` and `AVERAGE_ONNX` average between two scales (`average_once` and
    `average` in `tvmlab.qnn.frameworks`); `AVERAGE_ONNX` sums float32, row by row.
    """

    MAX, AVERAGE, AVERAGE_HALF, AVERAGE_TFLITE, AVERAGE_ONNX = range(5)


class Instruction:
    """One instruction; its fields are integers, passed by position or by name, `layer` first."""

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
    Numbers of `element` bytes (1, 2, 4 or 8) are copied as units; `count0` to `count3` count them
    along each dimension, the outermost first; `dram0`... and `sram0`... are the strides in bytes.
    """


class Store(Instruction, unit=Unit.DMA, names=_BOX):
    """Copy a box from SRAM to DRAM, except to constants or inputs; fields as in `Load`."""


class Matmul(Instruction, unit=Unit.ARRAY, names=_CONVOLUTION):
    """Convolve a tile of an image on the array; sums wrap in int32.

    Tap ``(i, j)`` of the kernel reads, for output pixel ``(y, x)``, the input pixel
    ``(y * stride_h + i * dilation_h - pad_top, x * stride_w + j * dilation_w - pad_left)``, or
    `pad_value` if that pixel is outside of ``in_rows`` x ``in_cols``. Data are int8 or uint8
    (`in_dtype`). `weights` is the address of int8 [ceil(out_channels / columns), kernel_h,
    kernel_w, channels, columns], `sums` the first accumulator of the result [out_rows, out_cols,
    out_channels], `bias` the address of the initial int32 [out_channels]; if -1, sums are added
    to the accumulators.
    """


class Depthwise(Instruction, unit=Unit.VECTOR, names=_CONVOLUTION + " weight_dtype"):
    """Convolve each channel with its own filter, on the vector unit; sums wrap in int32.

    Fields as in `Matmul`, and `weight_dtype`: int8 or int16. The weights are [kernel_h, kernel_w,
    channels], and out_channels is channels.
    """


class Requantize(Instruction, unit=Unit.VECTOR, names=_REQUANTIZE):
    """Rescale sums: read accumulators, write a view in SRAM of int8, uint8 or int32.

    ``clip(round(clip(sum, sum_low, sum_high) * multiplier) + zero_point, low, high)``.
    `multipliers` is the address of int32 (float32 with `Rounding.ONNX`, float64 with
    `TFLITE_FLOAT64`), `shifts` that of int32, which floating-point roundings do not read: one per
    channel if `per_channel` is 1, else one. To int32, the integer roundings wrap before they clip.
    """


class Add(Instruction, unit=Unit.VECTOR, names=_ADD):
    """Add two views, or rescale one if ``rhs_address`` is -1; all are [rows, cols, channels].

    Integer roundings: each side becomes ``round(((x - zero) << left_shift) * multiplier)``, which
    wraps in int32 as in requantize; their sum wraps in int32 and is rounded once more:
    ``clip(round(sum * out_multiplier) + out_zero, low, high)``.

    With `out_rounding` ONNX the multipliers are bits of float32 numbers: the ratios of the sides'
    scales to the result's, and `common` (`tvmlab.qnn.frameworks.fixed_part`). First ``rhs *
    rhs_ratio + common``, then ``lhs * lhs_ratio`` plus that sum, each
    rounded once; the last step rounds half to even.
    """


class Pool(Instruction, unit=Unit.VECTOR, names=_POOL):
    """Pool windows of a tile; the window's fields are those of a convolution.

    A tap outside of the tile is not counted, except that the `AVERAGE` kinds count taps in the
    padding if `count_pad` is 1, that is, rows below ``in_rows + pad_bottom`` and columns below
    ``in_cols + pad_right``. The padding of `AVERAGE` and `AVERAGE_HALF` is out_zero. An empty
    window results in the lowest number (`MAX`) or out_zero. `multiplier` and `shift` are results
    of `frameworks.average_parts` for `AVERAGE_TFLITE`, both scales' bits for `AVERAGE_ONNX`.
    """


class Sum(Instruction, unit=Unit.VECTOR, names=_SUM):
    """Sum each channel of a tile over its pixels into accumulators; sums wrap in int32.

    Numbers below `low` count as `low`: zero for a ReLU, or the dtype's minimum. Sums begin with
    `start` if `accumulate` is 0, else with the accumulators. `sums` is the first of [channels].
    """


class Sync(Instruction, unit=Unit.ALL):
    """Wait until all units have completed all earlier instructions."""
