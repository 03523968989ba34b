"""Convert quantized data and weights to operands of a processor's dot-product instructions.

The sum is ``sum((a - za) (w - zw))`` over integers, with 8-bit `a` and constant `w`. If the
differences ``w - zw`` fit into int8, they are the operands of an 8-bit instruction. The data are
converted to the instruction's dtype, shifted by 128 if necessary: ``a + s``. The excess is the same
for every pixel, because the padding is the zero point: ``(za + s) sum(w - zw)``, one number per
output channel, known at compile time. If the differences do not fit, or there is no such
instruction, both differences are multiplied as int16, in pairs if the processor can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from .compute import PAD, Window, round_up, sizes
from .machine import Dot, Machine

__all__ = ["Factors", "Pixels", "Rows", "source"]


@dataclass(frozen=True)
class Factors:
    """The data and weight operands of a product.

    `extra` is what the sum of each channel lacks, or lacks per unit of the data's zero point if
    that is `computed` at run time.
    """

    dot: Dot | None
    dtype: str
    move: int
    fill: int
    weight: NDArray[Any]
    extra: NDArray[np.int32] | None
    computed: bool = False

    @classmethod
    def plain(cls, weight: NDArray[Any], dtype: str = "float32") -> Factors:
        """Multiply numbers that are not quantized, unchanged."""
        return cls(None, dtype, 0, 0, weight, None)

    @classmethod
    def of(
        cls,
        dtype: str,
        zero: NDArray[Any] | None,
        weight: NDArray[Any],
        weight_zero: NDArray[Any],
        machine: Machine,
        *,
        alone: bool = False,
    ) -> Factors | None:
        """Choose the instruction and the operands; None if the differences exceed int16.

        The data's zero point is None if it is computed at run time; then the result is also None
        if the processor has no instruction for 8 bits, or a correction could leave int32.
        """
        whole = weight.astype(np.int64) - weight_zero.reshape(-1, *[1] * (weight.ndim - 1))
        low, none = int(np.iinfo(dtype).min), np.zeros(len(weight), np.int32)
        narrow, reach = machine.dot8, (whole.min(), whole.max())
        point = low if zero is None else int(zero.ravel()[0])
        if not alone and narrow and low <= point <= low + 255 and within(reach, narrow.weight):
            move = int(np.iinfo(narrow.data).min) - low
            sums = whole.sum(axis=tuple(range(1, whole.ndim)))
            if zero is None:
                if not within((sums.min() * 255, sums.max() * 255), "int32"):
                    return None
                kept, extra = whole.astype(narrow.weight), (-sums).astype(np.int32)
                return cls(narrow, narrow.data, move, 0, kept, extra, True)
            extra = (-(point + move) * sums).astype(np.int32)
            kept = whole.astype(narrow.weight)
            return cls(narrow, narrow.data, move, point + move, kept, extra)
        if (
            zero is None
            or not within(reach, "int16")
            or not within((low - point, low + 255 - point), "int16")
        ):
            return None
        wide = None if alone else machine.dot16
        return cls(wide, "int16", -point, 0, whole.astype(np.int16), none)

    @property
    def quantized(self) -> bool:
        """Whether the numbers are quantized, so that each channel has a correction."""
        return self.extra is not None

    @property
    def depth(self) -> int:
        """Inputs multiplied at once."""
        return self.dot.depth if self.dot else 1

    @property
    def bytes(self) -> int:
        """Size of a data operand in bytes."""
        return int(tvm.DataType(self.dtype).bits) // 8

    def moved(self, data: te.Tensor) -> te.Tensor:
        """Compute the data operand."""
        if str(data.dtype) == self.dtype and self.move == 0:
            return data

        def value(*index: Any) -> Any:
            found = data(*index)
            if self.dtype == "int16":
                return found.astype("int16") + tirx.const(self.move, "int16")
            # A shift by 128 flips the highest bit, so it needs no wider type.
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

    def constants(self, groups: int, tile: int) -> list[relax.Expr]:
        """Return the packed weights, and the corrections of quantized sums."""
        packed = self.packed(groups, tile)
        extra = [] if self.extra is None else [relax.const(self.extra)]
        return [relax.const(packed, str(packed.dtype)), *extra]

    def reader(self, weight: te.Tensor, tile: int) -> Callable[..., Any]:
        """Make the function ``(group, o, *taps, *steps)`` that reads packed weights."""
        if self.dot is None:
            return lambda group, o, *k: weight(group, o // tile, *k, o % tile)
        return lambda group, o, *k: weight(group, o // tile, *k[:-1], o % tile, k[-1])


def within(reach: tuple[Any, Any], dtype: str) -> bool:
    """Return whether a range of numbers fits in a dtype."""
    limits = np.iinfo(dtype)
    return bool(limits.min <= reach[0] and reach[1] <= limits.max)


@dataclass(frozen=True)
class Pixels:
    """Each tap is a pixel, whose inputs are multiplied a few at a time."""

    factors: Factors
    window: Window
    groups: int

    @property
    def taps(self) -> tuple[int, ...]:
        """Sizes of the sum without the inputs."""
        return tuple(self.factors.weight.shape[1:-1])

    @property
    def inputs(self) -> int:
        """Numbers summed at each tap."""
        return int(self.factors.weight.shape[-1])

    @property
    def steps(self) -> int:
        """Steps of a sum; numbers that are multiplied at once count as one step."""
        return math.prod(self.taps) * -(-self.inputs // self.factors.depth)

    @property
    def _channels(self) -> int:
        """Numbers of a pixel, with those of the last group rounded up."""
        return (self.groups - 1) * self.inputs + int(round_up(self.inputs, self.factors.depth))

    @property
    def _gathers(self) -> bool:
        """Whether only a part of the pixels is read, and each one once."""
        return self.taps == (1, 1) and self.window.strides != [1, 1]

    @property
    def apart(self) -> int:
        """Distance in bytes between the inputs of neighbouring output pixels."""
        return self._channels * int(self.window.strides[-1]) * self.factors.bytes

    def prepared(self, data: te.Tensor, height: int, width: int) -> te.Tensor:
        """Shift and pad NHWC data for an output of this size."""
        data, fill = self.factors.moved(data), self.factors.fill
        copy = self.window.gather if self._gathers else self.window.pad
        return copy(data, (height, width), self._channels, fill)

    def at(self, outer: Any, y: Any, x: Any, *k: Any) -> tuple[Any, ...]:
        """Return the index into the prepared data that an output position reads."""
        pixel = (y, x) if self._gathers else self.window.at((y, x), k[:-1])
        return (outer[0], *pixel, outer[1] * self.inputs + k[-1])


@dataclass(frozen=True)
class Voxels(Pixels):
    """Each tap is a voxel of a volume; each slice of the result is an image."""

    slices: int = 1  # of the result

    def prepared(self, data: te.Tensor, height: int, width: int) -> te.Tensor:
        """Pad NDHWC data for an output of this size."""
        return self.window.pad(data, (self.slices, height, width), self._channels)

    def at(self, outer: Any, y: Any, x: Any, *k: Any) -> tuple[Any, ...]:
        """Return the index into the prepared data that an output position reads."""
        volume, z = outer[0] // self.slices, outer[0] % self.slices
        return (volume, *self.window.at((z, y, x), k[:-1]), outer[1] * self.inputs + k[-1])


@dataclass(frozen=True)
class Rows(Pixels):
    """Each tap is a piece of a row: few channels, side by side, are padded once for all pixels.

    Three channels, those of an image, would be padded to four for the instructions; seven pixels in
    a row are 21 numbers, padded to 24, not to 28. The weights are ``[outputs, kh, numbers]``.
    """

    pixel: int = 1  # numbers of a pixel

    @property
    def apart(self) -> int:
        """Distance in bytes between the inputs of neighbouring output pixels."""
        return self.pixel * int(self.window.strides[1]) * self.factors.bytes

    def prepared(self, data: te.Tensor, height: int, width: int) -> te.Tensor:
        """Shift and pad NHWC data to ``[n, rows, numbers]``."""
        data = self.factors.moved(data)
        n, h, w, c = sizes(data.shape)
        (sy, sx), (dy, _), (top, left) = (
            self.window.strides,
            self.window.dilation,
            self.window.before,
        )
        down = (height - 1) * sy + (self.taps[0] - 1) * dy + 1
        across = (width - 1) * sx * c + int(round_up(self.inputs, self.factors.depth))

        def value(b: Any, y: Any, i: Any) -> Any:
            y, i = y - top, i - left * c
            inside = [i >= 0, i < w * c]
            inside += [y >= 0] if top else []
            inside += [y < h] if down - top > h else []
            number = data(b, y, tirx.floordiv(i, c), tirx.floormod(i, c))
            return tirx.if_then_else(
                tirx.all(*inside), number, tirx.const(self.factors.fill, data.dtype)
            )

        return te.compute((n, down, across), value, name=PAD)

    def at(self, outer: Any, y: Any, x: Any, ky: Any, *k: Any) -> tuple[Any, ...]:
        """Return the index into the prepared data that an output position reads."""
        (sy, sx), (dy, _) = self.window.strides, self.window.dilation
        return (outer[0], y * sy + ky * dy, x * sx * self.pixel + k[-1])


def source(factors: Factors, window: Window, groups: int) -> Pixels:
    """Choose the variant in which a convolution takes fewer steps."""
    pixels = Pixels(factors, window, groups)
    if groups > 1 or window.dilation[1] > 1 or factors.depth == 1:
        return pixels
    outputs, high, wide, inputs = factors.weight.shape
    joined = replace(factors, weight=factors.weight.reshape(outputs, high, wide * inputs))
    rows = Rows(joined, window, groups, inputs)
    return rows if rows.steps < pixels.steps else pixels
