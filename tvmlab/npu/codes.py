"""What all instructions have in common: units, dtypes, ways to round and to pool, encoding."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import ClassVar

__all__ = ["Dtype", "Instruction", "PoolKind", "Rounding", "Unit", "names"]


class Unit(IntEnum):
    """What executes an instruction; units work at the same time, each in its own order.

    `DMA` moves data between DRAM and SRAM, `ARRAY` multiplies and accumulates, `VECTOR` does the
    rest; for `ALL` an instruction waits.
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

    `NONE` does not: the number stays. `UPWARD`, `TONEAREST` and `TFLITE` take a multiplier of 31
    bits and a shift (`tvmlab.qnn.fixed_point`). `ONNX` multiplies in float32 and rounds
    half to even, `TFLITE_FLOAT64` in float64, half away from zero
    (`tvmlab.qnn.numbers`).
    """

    NONE = 0
    UPWARD = 1
    TONEAREST = 2
    TFLITE = 3
    ONNX = 4
    TFLITE_FLOAT64 = 5


class PoolKind(IntEnum):
    """What a window becomes.

    `AVERAGE` divides the sum of the stored integers, cutting the fraction off; `AVERAGE_HALF`
    rounds it, half away from zero. `AVERAGE_TFLITE` and `AVERAGE_ONNX` average between two scales
    (`average_once` and `average` in `tvmlab.qnn.frameworks`);
    `AVERAGE_ONNX` sums float32, row by row.
    """

    MAX = 0
    AVERAGE = 1
    AVERAGE_HALF = 2
    AVERAGE_TFLITE = 3
    AVERAGE_ONNX = 4


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: what all of them have in common.

    Attributes
    ----------
    layer : int
        The number of the layer that it works for.
    """

    opcode: ClassVar[int]
    unit: ClassVar[Unit]

    layer: int

    def words(self) -> list[int]:
        """Encode the instruction.

        Returns
        -------
        list of int
            The opcode, the layer and the fields, in this order; each is a word of 32 bits.
        """
        return [self.opcode, *(int(getattr(self, name)) for name in names(type(self)))]

    @classmethod
    def length(cls) -> int:
        """Say how many words an instruction of this kind takes: opcode, layer and fields."""
        return 1 + len(names(cls))


def names(kind: type[Instruction]) -> tuple[str, ...]:
    """Give the names of an instruction's fields.

    Parameters
    ----------
    kind : type of Instruction
        Its class.

    Returns
    -------
    tuple of str
        In the order in which they are encoded: `layer` first, then those of the class.
    """
    found = _NAMES.get(kind.opcode)
    if found is None:
        found = _NAMES[kind.opcode] = tuple(field.name for field in fields(kind))
    return found


_NAMES: dict[int, tuple[str, ...]] = {}
