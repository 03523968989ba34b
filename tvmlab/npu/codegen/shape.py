"""The sizes of a layer without its numbers: what tiling and timing follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from .. import layers
from ..isa import Rounding
from ..layers import Layer, Pair, Rescale, Value

__all__ = ["Kind", "LayerShape", "Residency", "shape_of"]


class Kind(Enum):
    """Which instructions a layer is made of."""

    MATMUL = "matmul"
    DEPTHWISE = "depthwise"
    ADD = "add"
    POOL = "pool"
    MEAN = "mean"


class Residency(Enum):
    """Where a value lies: whole in SRAM, or in DRAM with its channels innermost or outermost."""

    SRAM = "sram"
    NHWC = "nhwc"
    NCHW = "nchw"


@dataclass(frozen=True)
class LayerShape:
    """A layer's sizes; layers of equal sizes are tiled alike.

    `table_bytes` counts bias, multiplier and shift of one channel, `fixed_bytes` the multiplier and
    shift that all channels share. In a `folded` layer the taps of a line of the window count as
    channels of one tap: pixels side by side are bytes side by side, so that few channels fill the
    array's rows better.
    """

    kind: Kind
    images: int
    in_size: Pair
    out_size: Pair
    in_channels: int
    out_channels: int
    in_bytes: tuple[int, ...]
    out_bytes: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pads: Pair = (0, 0)
    weight_bytes: int = 0
    table_bytes: int = 0
    fixed_bytes: int = 0
    folded: bool = False

    @property
    def tiled_size(self) -> Pair:
        """Rows and columns of what is cut into tiles."""
        return self.in_size if self.kind is Kind.MEAN else self.out_size

    @property
    def reach(self) -> Pair:
        """Rows and columns from the first tap of a window to its last, both counted."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return math.prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether each pixel of the result needs only the pixel at its own place."""
        window = self.kernel, self.strides, self.pads
        same = self.kind is not Kind.MEAN and self.in_size == self.out_size
        return same and window == ((1, 1), (1, 1), (0, 0))

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

    def flat(self) -> LayerShape:
        """Take all pixels of all images as one line of pixels."""
        line = 1, self.images * math.prod(self.out_size)
        return replace(self, images=1, in_size=line, out_size=line)


def shape_of(layer: Layer, values: Mapping[str, Value]) -> LayerShape:
    """Return the sizes of any layer but a view."""
    images, *in_size, in_channels = values[layer.inputs[0]].nhwc
    _, *out_size, out_channels = values[layer.output].nhwc
    plain = LayerShape(
        Kind.ADD,
        images,
        (in_size[0], in_size[1]),
        (out_size[0], out_size[1]),
        in_channels,
        out_channels,
        tuple(values[name].dtype.bytes for name in layer.inputs),
        values[layer.output].dtype.bytes,
    )
    if isinstance(layer, (layers.Convolution, layers.Mean)):
        table, fixed = _tables(layer.rescale)
        plain = replace(plain, kind=Kind.MEAN, table_bytes=table, fixed_bytes=fixed)
    if isinstance(layer, (layers.Convolution, layers.Pool)):
        strides, dilation, pads = layer.strides, layer.dilation, layer.pads[:2]
        plain = replace(plain, strides=strides, dilation=dilation, pads=pads)
    if isinstance(layer, layers.Pool):
        return replace(plain, kind=Kind.POOL, kernel=layer.kernel)
    if isinstance(layer, layers.Convolution):
        return replace(
            plain,
            kind=Kind.DEPTHWISE if layer.depthwise else Kind.MATMUL,
            kernel=(layer.weights.shape[0], layer.weights.shape[1]),
            weight_bytes=layer.weights.dtype.itemsize,
            table_bytes=plain.table_bytes + 4,
        )
    return plain


def _tables(rescale: Rescale) -> Pair:
    """Return the bytes of multiplier and shift: of each channel, and shared by all."""
    if rescale.rounding is Rounding.NONE:
        return 0, 0
    count = rescale.multipliers.size
    size = (rescale.multipliers.nbytes + rescale.shifts.nbytes) // count
    return (size, 0) if count > 1 else (0, size)
