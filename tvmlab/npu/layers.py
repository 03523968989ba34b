"""A region as the code generator sees it: values, and layers that the machine has instructions for.

All constants are folded already: zero points into the bias, a pad into the window, scales into
multipliers. What a layer means is the formula of its instruction (`tvmlab.npu.isa`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .isa import Dtype, PoolKind, Rounding

__all__ = [
    "Add",
    "Convolution",
    "Layer",
    "Mean",
    "Pool",
    "Region",
    "Rescale",
    "Side",
    "Value",
    "View",
]

Array = npt.NDArray[np.generic]
Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


@dataclass(frozen=True)
class Value:
    """A tensor of a region.

    Attributes
    ----------
    name : str
        Unique in its region.
    dtype : Dtype
        Of its numbers.
    shape : tuple of int
        As the graph has it, with one, two or four dimensions.
    layout : str
        What the dimensions are: ``"NCHW"``, ``"NHWC"``, ``"NC"`` or ``"C"``. Inputs and results of
        a region lie in DRAM in this order; what is in between lies as the code generator likes.
    """

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    layout: str

    @property
    def nhwc(self) -> tuple[int, int, int, int]:
        """The shape as images; rows of a matrix are the pixels of one line."""
        size = dict(zip(self.layout, self.shape, strict=True))
        if "H" not in size:
            return 1, 1, size.get("N", 1), size["C"]
        return size["N"], size["H"], size["W"], size["C"]


@dataclass(frozen=True, eq=False)
class Rescale:
    """A multiplication by a real number, or by one for each channel, and a cast that saturates.

    Attributes
    ----------
    rounding : Rounding
        How; `NONE` does not multiply.
    multipliers : numpy.ndarray
        int32, float32 (`ONNX`) or float64 (`TFLITE_FLOAT64`); of shape [1] or [channels]. Empty
        with `NONE`.
    shifts : numpy.ndarray
        int32, the same shape; empty with the ways in float and with `NONE`.
    zero_point, low, high : int
        Added, then clipped to.
    """

    rounding: Rounding
    multipliers: Array
    shifts: Array
    zero_point: int
    low: int
    high: int

    def clipped(self, low: int, high: int) -> Rescale:
        """Give the same, clipped once more."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))


@dataclass(frozen=True, eq=False)
class Layer:
    """What all layers have in common.

    Attributes
    ----------
    name : str
        For reports, such as ``"conv2d 3x3 64->128 /2"``.
    inputs : tuple of str
        Names of the values it reads.
    output : str
        The name of the value it makes.
    """

    name: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True, eq=False)
class Convolution(Layer):
    """A convolution, depthwise convolution or matrix product, with its epilogue.

    Attributes
    ----------
    weights : numpy.ndarray
        int8 [kernel_h, kernel_w, channels, out_channels]; depthwise: int8 or int16 [kernel_h,
        kernel_w, channels].
    bias : numpy.ndarray
        int32 [out_channels]: the graph's bias and all that the zero points contribute, wrapped.
    pad_value : int
        The stored integer that padding is made of: the input's zero point.
    strides, dilation : tuple of int
        Down and across.
    pads : tuple of int
        Top, left, bottom, right.
    sum_low, sum_high : int
        What sums are clipped to before they are rescaled.
    rescale : Rescale
        What makes the output of the sums. Rounding `NONE` and an int32 output: the sums themselves.
    """

    weights: Array
    bias: npt.NDArray[np.int32]
    pad_value: int
    strides: Pair
    dilation: Pair
    pads: Sides
    sum_low: int
    sum_high: int
    rescale: Rescale

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved by itself."""
        return self.weights.ndim == 3


class Side(NamedTuple):
    """One side of an addition: `zero`, `rounding`, `multiplier`, `shift` of `isa.Add`."""

    zero: int
    rounding: Rounding
    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Add(Layer):
    """An addition of two values of one shape; or, with one input, a change of scale.

    Attributes
    ----------
    sides : tuple of Side
        One for each input.
    left_shift : int
        Of `isa.Add`.
    out : Side
        The last step; its `zero` is added after it.
    low, high : int
        What the result is clipped to.
    """

    sides: tuple[Side, ...]
    left_shift: int
    out: Side
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Pool(Layer):
    """A pooling; fields as in `isa.Pool`.

    Attributes
    ----------
    kernel, strides, dilation : tuple of int
        Down and across.
    pads : tuple of int
        Top, left, bottom, right. The result's shape says how many windows there are.
    """

    kind: PoolKind
    kernel: Pair
    strides: Pair
    dilation: Pair
    pads: Sides
    count_pad: bool
    in_zero: int
    out_zero: int
    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Mean(Layer):
    """A sum over all pixels of an image, and its change of scale; fields as in `isa.Sum`.

    Attributes
    ----------
    low : int
        Numbers below it count as it.
    start : int
        What the sums begin with.
    rescale : Rescale
        What makes the output of the sums.
    """

    low: int
    start: int
    rescale: Rescale


@dataclass(frozen=True, eq=False)
class View(Layer):
    """The same numbers in the same order under another shape: no instruction at all."""


@dataclass(frozen=True)
class Region:
    """What one function for the accelerator computes.

    Attributes
    ----------
    inputs, outputs : tuple of str
        Names of values, in the order of parameters and results.
    values : dict
        Every value by its name.
    layers : tuple of Layer
        In an order in which they can be computed.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, Value] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
