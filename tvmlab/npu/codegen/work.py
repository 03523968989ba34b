"""What a layer asks of the machine, without its numbers: sizes that tiling and timing follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from .. import layers
from ..isa import Rounding
from ..layers import Layer, Pair, Rescale, Value

__all__ = ["Kind", "Place", "Work", "of"]


class Kind(Enum):
    """Which instructions a layer is made of."""

    MATMUL = "matmul"
    DEPTHWISE = "depthwise"
    ADD = "add"
    POOL = "pool"
    MEAN = "mean"


class Place(Enum):
    """Where a value lies: whole in SRAM, or in DRAM with its channels inmost or outmost."""

    SRAM = "sram"
    NHWC = "nhwc"
    NCHW = "nchw"


@dataclass(frozen=True)
class Work:
    """A layer's sizes; layers with equal ones are cut alike.

    Attributes
    ----------
    kind : Kind
        What is done.
    images : int
        How many images there are, one after the other.
    in_size, out_size : tuple of int
        Rows and columns of an image, before and after.
    in_channels, out_channels : int
        Channels before and after.
    kernel, strides, dilation, pads : tuple of int
        The window, down and across; rows above and columns to the left that are padding.
    in_bytes : tuple of int
        Bytes of a number of each input.
    out_bytes, weight_bytes : int
        Bytes of a number of the result and of the weights.
    table_bytes : int
        Bytes of bias, multiplier and shift of a channel.
    fixed_bytes : int
        Bytes of the multiplier and shift that all channels share.
    folded : bool
        Whether the taps of a line of the window count as channels of one tap: pixels side by side
        are bytes side by side, so that few channels fill the array's rows better.
    """

    kind: Kind
    images: int
    in_size: Pair
    out_size: Pair
    in_channels: int
    out_channels: int
    kernel: Pair
    strides: Pair
    dilation: Pair
    pads: Pair
    in_bytes: tuple[int, ...]
    out_bytes: int
    weight_bytes: int
    table_bytes: int
    fixed_bytes: int
    folded: bool = False

    @property
    def reach(self) -> Pair:
        """Rows and columns from a window's first to its last, both counted."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def taps(self) -> int:
        """Places of a window."""
        return math.prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether each pixel of the result needs the one pixel at its own place."""
        return (
            self.kind is not Kind.MEAN
            and self.in_size == self.out_size
            and (self.kernel, self.strides, self.pads) == ((1, 1), (1, 1), (0, 0))
        )

    @property
    def padded_across(self) -> bool:
        """Whether windows reach over the left or the right edge."""
        across = (self.out_size[1] - 1) * self.strides[1] + self.reach[1] - self.pads[1]
        return self.pads[1] > 0 or across > self.in_size[1]

    def folds(self, rows: int) -> bool:
        """Whether folded taps take fewer blocks of the array's rows."""
        (_, taps), channels = self.kernel, self.in_channels
        blocks = taps * -(-channels // rows), -(-taps * channels // rows)
        return self.kind is Kind.MATMUL and self.dilation[1] == 1 and blocks[1] < blocks[0]

    def fold(self) -> Work:
        """Take the taps of a line as channels."""
        return replace(self, folded=True)

    def flat(self) -> Work:
        """Take all pixels of all images as one line of pixels."""
        line = 1, self.images * math.prod(self.out_size)
        return replace(self, images=1, in_size=line, out_size=line)


def of(layer: Layer, values: Mapping[str, Value]) -> Work:
    """Give the sizes of a layer.

    Parameters
    ----------
    layer : Layer
        Any but a view.
    values : mapping of str to Value
        The values of its region.
    """
    data, out = values[layer.inputs[0]], values[layer.output]
    images, *in_size, in_channels = data.nhwc
    _, *out_size, out_channels = out.nhwc
    kernel = strides = dilation = (1, 1)
    pads = (0, 0)
    weight_bytes = table_bytes = fixed_bytes = 0
    match layer:
        case layers.Convolution():
            kind = Kind.DEPTHWISE if layer.depthwise else Kind.MATMUL
            kernel = layer.weights.shape[0], layer.weights.shape[1]
            strides, dilation, pads = layer.strides, layer.dilation, layer.pads[:2]
            weight_bytes = layer.weights.dtype.itemsize
            table_bytes, fixed_bytes = _tables(layer.rescale)
            table_bytes += 4
        case layers.Pool():
            kind, kernel, pads = Kind.POOL, layer.kernel, layer.pads[:2]
            strides, dilation = layer.strides, layer.dilation
        case layers.Mean():
            kind = Kind.MEAN
            table_bytes, fixed_bytes = _tables(layer.rescale)
        case _:
            kind = Kind.ADD
    return Work(
        kind,
        images,
        (in_size[0], in_size[1]),
        (out_size[0], out_size[1]),
        in_channels,
        out_channels,
        kernel,
        strides,
        dilation,
        pads,
        tuple(values[name].dtype.bytes for name in layer.inputs),
        out.dtype.bytes,
        weight_bytes,
        table_bytes,
        fixed_bytes,
    )


def _tables(rescale: Rescale) -> Pair:
    """Give the bytes of multiplier and shift: of each channel, and of all together."""
    if rescale.rounding is Rounding.NONE:
        return 0, 0
    count = rescale.multipliers.size
    size = (rescale.multipliers.nbytes + rescale.shifts.nbytes) // count
    return (size, 0) if count > 1 else (0, size)
