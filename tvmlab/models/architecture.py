"""Networks as tables of layers.

`Architecture.layers()` lists a network as a table; `onnx_form` and `torch_form` each turn that
table into a model with one entry per operator. A parameter has the same name in the table, in the
ONNX file and in the torch `state_dict`. `resnet` and `mobilenet` define the tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["EPSILON", "Architecture", "Layer", "Parameters", "Table"]

#: Added to a variance before its root is taken; Gluon's, ONNX's and PyTorch's default.
EPSILON = 1e-5

Operator = Literal[
    "batch_norm", "conv", "relu", "relu6", "max_pool", "add", "global_pool", "flatten", "dense"
]
Parameters = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Layer:
    """One operator of a network.

    Parameters
    ----------
    op : str
        Its kind.
    name : str
        Its name, which is also its output's name and the beginning of its parameters' names.
    inputs : tuple of str
        The layers it reads; the network's own input is "data".
    channels : tuple of int
        Channels read and channels written.
    kernel, stride : int
        Of a convolution or a pooling, the same in both directions; the padding is `kernel // 2`.
    groups : int
        Of a convolution; as many groups as channels make it depthwise.
    """

    op: Operator
    name: str
    inputs: tuple[str, ...]
    channels: tuple[int, int]
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        """Zeros on each side, so that a stride of one keeps the size."""
        return self.kernel // 2

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the layer's parameters, in PyTorch's order."""
        in_channels, out_channels = self.channels
        window = (in_channels // self.groups, self.kernel, self.kernel)
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "batch_norm": dict.fromkeys(
                ("weight", "bias", "running_mean", "running_var"), (out_channels,)
            ),
            "conv": {"weight": (out_channels, *window)},
            "dense": {"weight": (out_channels, in_channels), "bias": (out_channels,)},
        }
        return {f"{self.name}.{name}": shape for name, shape in shapes.get(self.op, {}).items()}


@dataclass(frozen=True)
class Architecture(ABC):
    """A network that classifies pictures, without its weights.

    Parameters
    ----------
    name : str
        The network's name.
    image : tuple of int
        Channels, height and width of one input picture.
    classes : int
        Length of the output.
    """

    name: str
    image: tuple[int, int, int]
    classes: int

    @abstractmethod
    def layers(self) -> tuple[Layer, ...]:
        """List the operators in an order in which they can run; the last one is "logits"."""

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of every parameter, in the order of the layers."""
        return {
            name: shape for layer in self.layers() for name, shape in layer.parameters().items()
        }


class Table:
    """Rows of layers, added one by one; `colours` are the channels of the network's input."""

    def __init__(self, colours: int) -> None:
        self.rows: list[Layer] = []
        self.channels = {"data": colours}

    def add(
        self, op: Operator, name: str, *inputs: str, out: int | None = None, **sizes: Any
    ) -> str:
        """Add a layer that writes `out` channels, by default as many as it reads; its name."""
        read = self.channels[inputs[0]]
        self.channels[name] = read if out is None else out
        self.rows.append(Layer(op, name, inputs, (read, self.channels[name]), **sizes))
        return name

    def classify(self, x: str, classes: int) -> None:
        """Add what every network ends with: the mean over the picture and a dense layer."""
        x = self.add("global_pool", "head.pool", x)
        x = self.add("flatten", "head.flatten", x)
        self.add("dense", "logits", x, out=classes)
