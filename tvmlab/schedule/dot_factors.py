"""What quantized data and weights become, so that a processor's dot products can multiply them.

``sum((a - za) (w - zw))`` over integers, `a` of 8 bits and `w` a constant. Where the differences
``w - zw`` fit into int8, an instruction for 8 bits takes them as they are, and the data in the
dtype that it wants, moved by 128 if need be: ``a + s``. What is too much then is the same for every
pixel, as the padding is the zero point as well: ``(za + s) sum(w - zw)``, a number for each output
channel that is known at compile time. Else, or where no such instruction is there, both differences
are multiplied as int16, in pairs where the processor can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te, tirx

from .dot_intrinsics import Dot
from .machine import Machine

__all__ = ["Factors"]


@dataclass(frozen=True)
class Factors:
    """How the data and the weights are multiplied."""

    dot: Dot | None
    dtype: str
    move: int
    fill: int
    weight: NDArray[Any]
    extra: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        dtype: str,
        zero: NDArray[Any],
        weight: NDArray[Any],
        weight_zero: NDArray[Any],
        machine: Machine,
        *,
        alone: bool = False,
    ) -> Factors | None:
        """Choose."""
        point = int(zero.ravel()[0])
        whole = weight.astype(np.int64) - weight_zero.reshape(-1, *[1] * (weight.ndim - 1))
        low, none = int(np.iinfo(dtype).min), np.zeros(len(weight), np.int32)
        narrow, reach = machine.dot8, (whole.min(), whole.max())
        if not alone and narrow and low <= point <= low + 255 and within(reach, narrow.weight):
            move = int(np.iinfo(narrow.data).min) - low
            sums = whole.sum(axis=tuple(range(1, whole.ndim)))
            extra = (-(point + move) * sums).astype(np.int32)
            kept = whole.astype(narrow.weight)
            return cls(narrow, narrow.data, move, point + move, kept, extra)
        if not within(reach, "int16") or not within((low - point, low + 255 - point), "int16"):
            return None
        wide = None if alone else machine.dot16
        return cls(wide, "int16", -point, 0, whole.astype(np.int16), none)

    @property
    def depth(self) -> int:
        """Inputs that are multiplied at once."""
        return self.dot.depth if self.dot else 1

    @property
    def bytes(self) -> int:
        """Size of a number of the data as it is multiplied."""
        return int(tvm.DataType(self.dtype).bits) // 8

    def moved(self, data: te.Tensor) -> te.Tensor:
        """Compute the data as they are multiplied."""
        if str(data.dtype) == self.dtype and self.move == 0:
            return data

        def value(*index: Any) -> Any:
            found = data(*index)
            if self.dtype == "int16":
                return found.astype("int16") + tirx.const(self.move, "int16")
            # To move by 128 is to change the highest bit: no number of more bits is needed.
            highest = tirx.const(np.array(128, "uint8").view(str(data.dtype)).item(), data.dtype)
            return tirx.reinterpret(self.dtype, found ^ highest)

        return te.compute(data.shape, value, name="move")

    def packed(self, groups: int, tile: int) -> NDArray[Any]:
        """Pack the weights as ``[group, blocks, *taps, steps, tile, depth]``."""
        outputs, *taps, inputs = self.weight.shape
        each, depth = outputs // groups, self.depth
        blocks, steps = -(-each // tile), -(-inputs // depth)
        whole = np.zeros((groups, blocks * tile, *taps, steps * depth), self.weight.dtype)
        whole[:, :each, ..., :inputs] = self.weight.reshape(groups, each, *taps, inputs)
        whole = whole.reshape(groups, blocks, tile, *taps, steps, depth)
        made = np.ascontiguousarray(np.moveaxis(whole, 2, -2))
        return made if self.dot else made[..., 0]

    def reader(self, weight: te.Tensor, tile: int) -> Callable[..., Any]:
        """Make the function ``(group, o, *taps, *steps)`` that reads packed weights."""
        if self.dot is None:
            return lambda group, o, *k: weight(group, o // tile, *k, o % tile)
        return lambda group, o, *k: weight(group, o // tile, *k[:-1], o % tile, k[-1])


def within(reach: tuple[Any, Any], dtype: str) -> bool:
    """Tell whether the numbers from one to another are numbers of a dtype."""
    limits = np.iinfo(dtype)
    return bool(limits.min <= reach[0] and reach[1] <= limits.max)
