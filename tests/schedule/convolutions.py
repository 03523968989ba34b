"""Convolutions drawn at random, and PyTorch's results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from tvm import relax

from tests.oracles.models import array
from tests.schedule.kernels import Case

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry(Case):
    """The sizes of a convolution; channels are those of one group."""

    kernels = "conv2d"

    batch: int
    size: Pair
    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    dilation: Pair
    groups: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Conv(Geometry):
    """A convolution and what follows it."""

    epilogue: tuple[str, ...] = ()
    constant: bool = True
    channels_last: bool = False  # activations in NHWC and weights in OHWI, as the rules have them
    # A limit makes the result small, and not the rounding of the sum of a thousand products before
    # it: the bar is that of whole networks.
    tolerance: float = 1e-4

    @property
    def data_shape(self) -> tuple[int, ...]:
        return (self.batch, self.groups * self.inputs, *self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        top, left, bottom, right = self.pads
        padded = self.size[0] + top + bottom, self.size[1] + left + right
        pixels = (
            (padded[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.strides[i] + 1
            for i in (0, 1)
        )
        return (self.batch, self.groups * self.outputs, *pixels)

    @property
    def rule(self) -> str:
        alone = self.groups > 1 and self.inputs == self.outputs == 1
        return "Depthwise" if alone and self.constant else "Contraction"

    def arrays(self) -> dict[str, np.ndarray]:
        weight = array(self.groups * self.outputs, self.inputs, *self.kernel, seed=1)
        arrays = {"data": array(*self.data_shape), "weight": weight}
        if "bias" in self.epilogue:
            arrays["bias"] = array(1, self.groups * self.outputs, 1, 1, seed=2)
        if "residual" in self.epilogue:
            arrays["residual"] = array(*self.shape, seed=3)
        return arrays

    def contents(self) -> dict[str, np.ndarray]:
        return {name: self.in_layout(content) for name, content in self.arrays().items()}

    @property
    def given(self) -> tuple[str, ...]:
        """The arrays that are parameters, not constants."""
        return ("data", "residual") if self.constant else ("data", "weight", "bias", "residual")

    def in_layout(self, values: np.ndarray) -> np.ndarray:
        """Move the channels of an array of PyTorch's to where this convolution has them."""
        return np.ascontiguousarray(np.moveaxis(values, 1, -1)) if self.channels_last else values

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        layouts = ("NHWC", "OHWI") if self.channels_last else ("NCHW", "OIHW")
        y = relax.op.nn.conv2d(
            *(values["data"], values["weight"], self.strides, self.pads, self.dilation),
            self.groups,
            *layouts,
        )
        for step in self.epilogue:
            y = builder.emit(y)
            if step == "relu":
                y = relax.op.nn.relu(y)
            elif step == "clip":
                y = relax.op.clip(y, 0, 6)
            else:
                y = relax.op.add(y, values[step])
        return y

    def reference(self) -> np.ndarray:
        values = self.arrays()
        x, weight = (torch.from_numpy(values[name]).double() for name in ("data", "weight"))
        top, left, bottom, right = self.pads
        x = torch.nn.functional.pad(x, (left, right, top, bottom))
        y = torch.nn.functional.conv2d(x, weight, None, self.strides, 0, self.dilation, self.groups)
        for step in self.epilogue:
            if step == "relu":
                y = y.relu()
            elif step == "clip":
                y = y.clip(0, 6)
            else:
                y = y + torch.from_numpy(values[step])
        return self.in_layout(y.numpy())


def small(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def geometries(draw: st.DrawFn, window: int, side: int) -> dict[str, Any]:
    """Draw sizes of a convolution, channels those of one group: windows and images up to a size."""
    kernel = draw(st.tuples(small(window), small(window)))
    dilation = draw(st.one_of(st.just((1, 1)), st.tuples(small(3), small(3))))
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)]
    pads = draw(st.tuples(*(st.integers(0, min(4, reach[i % 2])) for i in range(4))))
    least = [max(1, reach[i] - pads[i] - pads[i + 2]) for i in (0, 1)]
    # Shrinking goes to one group of one channel.
    kind = draw(st.sampled_from(("plain", "plain", "plain", "grouped", "depthwise", "multiplied")))
    groups, inputs, outputs = 1, 1, 1
    if kind == "plain":
        inputs, outputs = draw(small(70)), draw(small(70))
    elif kind == "grouped":
        groups, inputs, outputs = draw(st.integers(2, 5)), draw(small(14)), draw(small(14))
    else:
        groups = draw(st.integers(2, 70))
        outputs = draw(st.integers(2, 4)) if kind == "multiplied" else 1
    return {
        "batch": draw(small(3)),
        "size": tuple(draw(st.integers(low, side)) for low in least),
        "kernel": kernel,
        "strides": draw(st.one_of(st.just((1, 1)), st.tuples(small(3), small(3)))),
        "pads": pads,
        "dilation": dilation,
        "groups": groups,
        "inputs": inputs,
        "outputs": outputs,
    }


@st.composite
def convolutions(draw: st.DrawFn) -> Conv:
    epilogues = [(), ("bias",), ("bias", "relu"), ("bias", "residual", "relu"), ("bias", "clip")]
    return Conv(
        **draw(geometries(7, 40)),
        epilogue=draw(st.sampled_from(epilogues)),
        constant=draw(st.sampled_from((True, True, True, True, False))),
        # Transposes cost as much time to compile as convolutions.
        channels_last=draw(st.sampled_from((True,) * 9 + (False,))),
    )
