"""Where a quantized convolution reads its data: pixel by pixel, or along rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx

from .compute import PAD, Window, round_up, sizes
from .dot_factors import Factors

__all__ = ["Pixels", "Rows", "source"]


@dataclass(frozen=True)
class Pixels:
    """Each tap is a pixel, whose inputs are multiplied a few at once."""

    factors: Factors
    window: Window
    groups: int

    @property
    def taps(self) -> tuple[int, ...]:
        """Sizes of the sum, but for the inputs."""
        return tuple(self.factors.weight.shape[1:-1])

    @property
    def inputs(self) -> int:
        """Numbers that are summed at each tap."""
        return int(self.factors.weight.shape[-1])

    @property
    def steps(self) -> int:
        """Numbers of a sum, those that are multiplied at once counted as one."""
        return math.prod(self.taps) * -(-self.inputs // self.factors.depth)

    @property
    def _channels(self) -> int:
        """Numbers of a pixel; those of the last group are rounded up."""
        return (self.groups - 1) * self.inputs + int(round_up(self.inputs, self.factors.depth))

    @property
    def _gathers(self) -> bool:
        """Whether only a part of the pixels is read, and that once."""
        return self.taps == (1, 1) and self.window.strides != [1, 1]

    @property
    def apart(self) -> int:
        """Bytes between what neighbouring pixels of the output read."""
        return self._channels * int(self.window.strides[1]) * self.factors.bytes

    def prepared(self, data: te.Tensor, height: int, width: int) -> te.Tensor:
        """Move and pad NHWC data for an output of this size."""
        data, fill = self.factors.moved(data), self.factors.fill
        copy = self.window.gather if self._gathers else self.window.pad
        return copy(data, height, width, self._channels, fill)

    def at(self, outer: Any, y: Any, x: Any, ky: Any, kx: Any, k: Any) -> tuple[Any, ...]:
        """Say which number of the prepared data the output at a place reads."""
        pixel = (y, x) if self._gathers else self.window.at(y, x, ky, kx)
        return (outer[0], *pixel, outer[1] * self.inputs + k)


@dataclass(frozen=True)
class Rows(Pixels):
    """Each tap is a piece of a row: few channels, side by side, are padded once for all pixels.

    Three channels, as a picture has, would be padded to four for the instructions; seven pixels in
    a row are 21 numbers, padded to 24, not to 28. The weights are ``[outputs, kh, numbers]``.
    """

    pixel: int = 1  # numbers of a pixel

    @property
    def apart(self) -> int:
        """Bytes between what neighbouring pixels of the output read."""
        return self.pixel * int(self.window.strides[1]) * self.factors.bytes

    def prepared(self, data: te.Tensor, height: int, width: int) -> te.Tensor:
        """Move and pad NHWC data to ``[n, rows, numbers]``."""
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
        """Say which number of the prepared data the output at a place reads."""
        (sy, sx), (dy, _) = self.window.strides, self.window.dilation
        return (outer[0], y * sy + ky * dy, x * sx * self.pixel + k[-1])


def source(factors: Factors, window: Window, groups: int) -> Pixels:
    """Choose how a convolution reads its data: in the way that takes fewer steps."""
    pixels = Pixels(factors, window, groups)
    if groups > 1 or window.dilation[1] > 1:
        return pixels
    outputs, high, wide, inputs = factors.weight.shape
    joined = replace(factors, weight=factors.weight.reshape(outputs, high, wide * inputs))
    rows = Rows(joined, window, groups, inputs)
    return rows if rows.steps < pixels.steps else pixels
