"""The accelerator's instructions: their fields, units and encoding.

An instruction is a row of 32-bit words: its opcode, the number of the layer that it works for (so
that reports can say where the time goes), then its fields in the order of the class. Addresses are
bytes in SRAM; `sums` are places among the accumulators. Every size counts elements unless it says
bytes. An image in SRAM is a *view*: an address, the bytes from a row to the next and from a pixel
to the next; the channels of a pixel lie side by side. Results appear pixel by pixel, after tables
have been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .config import Config

__all__ = [
    "INSTRUCTIONS",
    "Add",
    "Depthwise",
    "Dtype",
    "Effect",
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
    "Unit",
    "cycles",
    "effects",
]


class Unit(IntEnum):
    """What executes an instruction; units work at the same time, each in its own order.

    `DMA` moves data between DRAM and SRAM, `ARRAY` multiplies and accumulates, `VECTOR` does the
    rest; an instruction of `ALL` waits for all of them.
    """

    DMA = 0
    ARRAY = 1
    VECTOR = 2
    ALL = 3


class Dtype(IntEnum):
    """Types of numbers in memory: `int8`, `uint8`, `int16` and `int32`."""

    int8 = 0
    uint8 = 1
    int16 = 2
    int32 = 3

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return (1, 1, 2, 4)[self]


class Rounding(IntEnum):
    """How the vector unit multiplies an integer by a real number.

    With `NONE` the number stays. `UPWARD`, `TONEAREST` and `TFLITE` take a multiplier of 31 bits
    and a shift (`tvmlab.qnn.fixed_point`). `ONNX` multiplies in float32 and rounds half to even,
    `TFLITE_FLOAT64` in float64, half away from zero (`tvmlab.qnn.numbers`).
    """

    NONE = 0
    UPWARD = 1
    TONEAREST = 2
    TFLITE = 3
    ONNX = 4
    TFLITE_FLOAT64 = 5


class PoolKind(IntEnum):
    """How a window is pooled.

    `AVERAGE` divides the sum of the stored integers and truncates; `AVERAGE_HALF` rounds half away
    from zero. `AVERAGE_TFLITE` and `AVERAGE_ONNX` average between two scales (`average_once` and
    `average` in `tvmlab.qnn.frameworks`); `AVERAGE_ONNX` sums float32, row by row.
    """

    MAX = 0
    AVERAGE = 1
    AVERAGE_HALF = 2
    AVERAGE_TFLITE = 3
    AVERAGE_ONNX = 4


class Instruction:
    """One instruction; its fields are integers, given by place or by name.

    Attributes
    ----------
    layer : int
        The number of the layer that it works for.
    """

    opcode: ClassVar[int]
    unit: ClassVar[Unit]
    names: ClassVar[tuple[str, ...]]

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init__(self, *values: int, **named: int) -> None: ...
        def __getattr__(self, name: str) -> int: ...

    def words(self) -> list[int]:
        """Encode the instruction: opcode, layer and the other fields, each a word of 32 bits."""
        return [self.opcode, *(int(getattr(self, name)) for name in self.names)]

    @classmethod
    def length(cls) -> int:
        """Return the number of words of an instruction of this kind."""
        return 1 + len(cls.names)


#: The classes of instructions, by opcode.
INSTRUCTIONS: dict[int, type[Instruction]] = {}


def _instruction(unit: Unit, names: str = "") -> Callable[[type], Any]:
    """Make the next instruction of a class: a frozen dataclass with these fields."""

    def wrap(cls: type) -> Any:
        found = ("layer", *names.split())
        body: dict[str, Any] = {"unit": unit, "opcode": len(INSTRUCTIONS) + 1, "names": found}
        body |= {"__doc__": cls.__doc__, "__module__": __name__}
        typed = [(name, int) for name in found]
        made = make_dataclass(
            cls.__name__, typed, bases=(Instruction,), namespace=body, frozen=True, slots=True
        )
        INSTRUCTIONS[len(INSTRUCTIONS) + 1] = made
        return made

    return wrap


_BOX = """
    tensor offset address element count0 count1 count2 count3 dram0 dram1 dram2 dram3
    sram0 sram1 sram2 sram3
"""
_CONVOLUTION = """
    address row_stride pixel_stride in_dtype in_rows in_cols channels pad_top pad_left pad_value
    weights kernel_h kernel_w stride_h stride_w dilation_h dilation_w out_rows out_cols
    out_channels sums bias
"""


@_instruction(Unit.DMA, _BOX)
class Load(Instruction):
    """Copy a box of up to four dimensions from a tensor in DRAM to the SRAM.

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


@_instruction(Unit.DMA, _BOX)
class Store(Instruction):
    """Copy a box from SRAM to DRAM, not to constants or inputs; fields as in `Load`."""


@_instruction(Unit.ARRAY, _CONVOLUTION)
class Matmul(Instruction):
    """Convolve a tile of an image on the array; sums wrap in int32.

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
        Address of int8 [ceil(out_channels / columns), kernel_h, kernel_w, channels, columns].
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w : int
        The window.
    out_rows, out_cols, out_channels : int
        Size of the result.
    sums : int
        The first accumulator of the result, [out_rows, out_cols, out_channels].
    bias : int
        Address of int32 [out_channels] to begin with; -1 adds to what the accumulators hold.
    """


@_instruction(Unit.VECTOR, _CONVOLUTION + " weight_dtype")
class Depthwise(Instruction):
    """Convolve each channel by itself, on the vector unit; sums wrap in int32.

    Fields as in `Matmul`, and one more. The weights are [kernel_h, kernel_w, channels], and
    out_channels is channels.

    Attributes
    ----------
    weight_dtype : Dtype
        int8 or int16.
    """


@_instruction(
    Unit.VECTOR,
    """
    sums rows cols channels sum_low sum_high rounding multipliers shifts per_channel zero_point
    low high address row_stride pixel_stride out_dtype
    """,
)
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


@_instruction(
    Unit.VECTOR,
    """
    rows cols channels
    lhs_address lhs_row_stride lhs_pixel_stride lhs_dtype
    lhs_zero lhs_rounding lhs_multiplier lhs_shift
    rhs_address rhs_row_stride rhs_pixel_stride rhs_dtype
    rhs_zero rhs_rounding rhs_multiplier rhs_shift
    left_shift out_rounding out_multiplier out_shift out_zero low high
    out_address out_row_stride out_pixel_stride out_dtype
    """,
)
class Add(Instruction):
    """Add two views, or rescale one.

    Integer ways: each side becomes ``round(((x - zero) << left_shift) * multiplier)``, wrapping in
    int32 as requantize does; their sum wraps in int32 and is rounded once more:
    ``clip(round(sum * out_multiplier) + out_zero, low, high)``.

    With `out_rounding` ONNX the three multipliers are bits of float32 numbers: the ratios of the
    sides' scales to the result's, and what the sums have in common (`tvmlab.qnn.arithmetic.add`):
    ``rhs * rhs_ratio + common``, then ``lhs * lhs_ratio +`` that, both rounded once, then to the
    nearest integer, half to even. The sides' zero points are in what the sums have in common: the
    fields for them are not read, nor are the sides' roundings and shifts.

    Attributes
    ----------
    rows, cols, channels : int
        The size of all three views.
    lhs, rhs, out : view
        ``rhs_address`` -1: there is no right side.
    """


@_instruction(
    Unit.VECTOR,
    """
    kind address row_stride pixel_stride dtype in_rows in_cols channels
    kernel_h kernel_w stride_h stride_w dilation_h dilation_w
    pad_top pad_left pad_bottom pad_right count_pad in_zero out_zero multiplier shift
    out_rows out_cols out_address out_row_stride out_pixel_stride
    """,
)
class Pool(Instruction):
    """Pool windows of a tile; the window's fields are those of a convolution.

    A place outside of the tile counts nothing; the kinds of `AVERAGE` count it where it is in the
    padding and `count_pad` is 1: rows below ``in_rows + pad_bottom`` and columns below
    ``in_cols + pad_right``. The padding of `AVERAGE` and `AVERAGE_HALF` is out_zero. A window of
    nothing is the lowest number (`MAX`) or out_zero.

    Attributes
    ----------
    in_zero, multiplier, shift : int
        `AVERAGE_TFLITE`: the data's zero point, `multiplier` and `exponent` of
        `frameworks.average_parts`. `AVERAGE_ONNX`: the zero point, and the bits of the data's scale
        and of the result's (float32).
    """


@_instruction(
    Unit.VECTOR,
    "address row_stride pixel_stride dtype rows cols channels low start accumulate sums",
)
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


@_instruction(Unit.ALL)
class Sync(Instruction):
    """Wait until all units have done all instructions before it."""


_SRAM, _ACCUMULATORS, _DRAM = 0, 1, 2


class Effect(NamedTuple):
    """A stretch of bytes that an instruction reads or writes.

    `memory` is 0 for the SRAM, 1 for the accumulators, and 2 and more for the tensors in DRAM.
    """

    memory: int
    start: int
    end: int
    writes: bool


#: The prefixes of the fields of a view's place, dtype and size, and whether it is written.
_VIEWS: dict[type, tuple[tuple[str, str, str, bool], ...]] = {
    Matmul: (("", "in_", "in_", False),),
    Depthwise: (("", "in_", "in_", False),),
    Requantize: (("", "out_", "", True),),
    Add: (
        ("lhs_", "lhs_", "", False),
        ("rhs_", "rhs_", "", False),
        ("out_", "out_", "", True),
    ),
    Pool: (("", "", "in_", False), ("out_", "", "out_", True)),
    Sum: (("", "", "", False),),
}


def effects(one: Instruction, columns: int) -> Iterator[Effect]:
    """List what any instruction but `Sync` reads and writes.

    Parameters
    ----------
    one : Instruction
        The instruction. Between the first and the last byte of a view, all bytes count.
    columns : int
        Of the array: its weights come in blocks of so many output channels.

    Yields
    ------
    Effect
        At least one.
    """
    if isinstance(one, (Load, Store)):
        store, last = isinstance(one, Store), [getattr(one, f"count{i}") - 1 for i in range(4)]
        dram, sram = (
            one.element + sum(n * getattr(one, f"{memory}{i}") for i, n in enumerate(last))
            for memory in ("dram", "sram")
        )
        yield Effect(_DRAM + one.tensor, one.offset, one.offset + dram, store)
        yield Effect(_SRAM, one.address, one.address + sram, not store)
    for place, dtype, size, writes in _VIEWS.get(type(one), ()):
        address = getattr(one, f"{place}address")
        if address >= 0:
            end = address + (getattr(one, f"{size}rows") - 1) * getattr(one, f"{place}row_stride")
            end += (getattr(one, f"{size}cols") - 1) * getattr(one, f"{place}pixel_stride")
            end += one.channels * Dtype(getattr(one, f"{dtype}dtype")).bytes
            yield Effect(_SRAM, address, end, writes)
    for address, count in _tables(one, columns):
        if address >= 0 and count:
            yield Effect(_SRAM, address, address + count, False)
    if isinstance(one, (Matmul, Depthwise)):
        count = one.out_rows * one.out_cols * one.out_channels
    elif isinstance(one, Requantize):
        count = one.rows * one.cols * one.channels
    else:
        count = one.channels if isinstance(one, Sum) else 0
    if count:
        end = 4 * (one.sums + count)
        yield Effect(_ACCUMULATORS, 4 * one.sums, end, not isinstance(one, Requantize))


def _tables(one: Instruction, columns: int) -> list[tuple[int, int]]:
    """List the addresses and the bytes of the tables that an instruction reads."""
    if isinstance(one, (Matmul, Depthwise)):
        each = -(-one.out_channels // columns) * columns
        if isinstance(one, Depthwise):
            each = Dtype(one.weight_dtype).bytes
        weights = one.kernel_h * one.kernel_w * one.channels * each
        return [(one.weights, weights), (one.bias, 4 * one.out_channels)]
    if not isinstance(one, Requantize) or one.rounding == Rounding.NONE:
        return []
    count = one.channels if one.per_channel else 1
    double = one.rounding == Rounding.TFLITE_FLOAT64
    floats = double or one.rounding == Rounding.ONNX
    return [
        (one.multipliers, count * (8 if double else 4)),
        (one.shifts, 0 if floats else 4 * count),
    ]


def cycles(one: Instruction, config: Config) -> int:
    """Return the cycles that an instruction takes on its unit.

    Parameters
    ----------
    one : Instruction
        Any but `Sync`.
    config : Config
        The machine.
    """
    if isinstance(one, (Load, Store)):
        return config.dma_latency + -(-_bus_bytes(one, config) // config.dma_bytes_per_cycle)
    if isinstance(one, Matmul):
        inputs, outputs = -(-one.channels // config.rows), -(-one.out_channels // config.columns)
        pixels = max(one.out_rows * one.out_cols, config.rows)
        blocks = one.kernel_h * one.kernel_w * inputs * outputs
        return config.rows + config.columns + blocks * pixels
    if isinstance(one, (Depthwise, Pool)):
        passes = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols
    else:
        passes = one.rows * one.cols * (2 if isinstance(one, Add) and one.rhs_address >= 0 else 1)
    return config.vector_latency + passes * -(-one.channels // config.lanes)


def _bus_bytes(one: Instruction, config: Config) -> int:
    """Return the bytes of a transfer: runs that lie side by side in DRAM, in whole bursts."""
    run, runs, joined = one.element, 1, True
    for i in (3, 2, 1, 0):
        count = getattr(one, f"count{i}")
        if count > 1:
            joined = joined and getattr(one, f"dram{i}") == run
            run, runs = (run * count, runs) if joined else (run, runs * count)
    burst = config.dma_burst_bytes
    return runs * -(-run // burst) * burst
