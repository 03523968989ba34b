"""What the numbers in instructions and programs stand for: units, dtypes, ways to round, pools."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Dtype", "PoolKind", "Rounding", "Unit"]


class Unit(IntEnum):
    """What executes an instruction; units work at the same time, each in its own order."""

    DMA = 0
    ARRAY = 1
    VECTOR = 2
    ALL = 3


class Dtype(IntEnum):
    """Types of numbers in memory."""

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
    bits and a shift (`tvmlab.qnn.reference.fixed_point`). `ONNX` multiplies in float32 and rounds
    half to even, `TFLITE_FLOAT64` in float64, half away from zero
    (`tvmlab.qnn.reference.scaling`).
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
    (`average` in `tvmlab.qnn.reference.tflite` and `tvmlab.qnn.reference.onnx_runtime`).
    """

    MAX = 0
    AVERAGE = 1
    AVERAGE_HALF = 2
    AVERAGE_TFLITE = 3
    AVERAGE_ONNX = 4
