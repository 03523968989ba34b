"""Networks as tables of layers: ResNet v2 in three sizes, and MobileNetV2.

`onnx_form` and `torch_form` each turn an `Architecture` into a model with one entry per operator.
A parameter has the same name in the table, in the ONNX file and in the torch `state_dict`.

ResNet v2 is that of He et al., "Identity Mappings in Deep Residual Networks", 2016, and MobileNetV2
that of Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

#: Added to a variance before its root is taken; the default of Gluon, ONNX and PyTorch.
EPSILON = 1e-5

Operator = Literal[
    "batch_norm", "conv", "relu", "relu6", "max_pool", "add", "global_pool", "flatten", "dense"
]
Parameters = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Layer:
    """One operator of a network; its name is the name of its output, and its parameters' prefix.

    The inputs are names of layers, or "data"; `channels` counts input and output channels.
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
        """Zeros on each side, so that a stride of 1 keeps the size."""
        return self.kernel // 2

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of the parameters, in PyTorch's order."""
        read, written = self.channels
        norm = ("weight", "bias", "running_mean", "running_var")
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "batch_norm": dict.fromkeys(norm, (written,)),
            "conv": {"weight": (written, read // self.groups, self.kernel, self.kernel)},
            "dense": {"weight": (written, read), "bias": (written,)},
        }
        return {f"{self.name}.{name}": shape for name, shape in shapes.get(self.op, {}).items()}


@dataclass(frozen=True)
class Architecture:
    """A network that classifies images of channels, height and width, without its weights.

    The layers are in topological order; the last one is "logits".
    """

    name: str
    image: tuple[int, int, int]
    classes: int
    layers: tuple[Layer, ...]

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of every parameter, in the order of the layers."""
        return {name: shape for layer in self.layers for name, shape in layer.parameters().items()}


class _Table:
    """A builder for rows of layers; `colours` is the number of channels of the network's input."""

    def __init__(self, colours: int) -> None:
        self.rows: list[Layer] = []
        self.channels = {"data": colours}

    def add(
        self, op: Operator, name: str, *inputs: str, out: int | None = None, **sizes: Any
    ) -> str:
        """Add a layer with `out` output channels, by default as many as inputs; return its name."""
        read = self.channels[inputs[0]]
        self.channels[name] = read if out is None else out
        self.rows.append(Layer(op, name, inputs, (read, self.channels[name]), **sizes))
        return name

    def norm_relu(self, prefix: str, number: str, x: str) -> str:
        x = self.add("batch_norm", f"{prefix}.norm{number}", x)
        return self.add("relu", f"{prefix}.relu{number}", x)

    def conv_norm(
        self, prefix: str, suffix: str, x: str, *, linear: bool = False, **sizes: Any
    ) -> str:
        """Add a convolution, its batch norm and, unless it is linear, a ReLU6."""
        x = self.add("conv", f"{prefix}.conv{suffix}", x, **sizes)
        x = self.add("batch_norm", f"{prefix}.norm{suffix}", x)
        return x if linear else self.add("relu6", f"{prefix}.relu{suffix}", x)

    def classify(self, x: str, classes: int) -> tuple[Layer, ...]:
        """Add the mean over the image and a dense layer, and return all rows."""
        x = self.add("global_pool", "head.pool", x)
        x = self.add("flatten", "head.flatten", x)
        self.add("dense", "logits", x, out=classes)
        return tuple(self.rows)


def resnet_v2(
    name: str,
    image: tuple[int, int, int],
    classes: int,
    units: tuple[int, ...],
    channels: tuple[int, ...],
    bottleneck: bool = False,
    small: bool = False,
) -> Architecture:
    """Return a pre-activation residual network.

    A unit has two 3x3 convolutions; with `bottleneck`, it has 1x1, 3x3, 1x1 with a quarter of the
    channels inside. `units` counts the units of each stage; `channels` are those after the stem,
    then after each stage. For `small` images the stem is one 3x3 convolution.
    """
    table = _Table(image[0])
    x = table.add("batch_norm", "data_norm", "data")
    if small:
        x = table.add("conv", "stem.conv", x, out=channels[0], kernel=3)
    else:
        x = table.add("conv", "stem.conv", x, out=channels[0], kernel=7, stride=2)
        x = table.norm_relu("stem", "", x)
        x = table.add("max_pool", "stem.pool", x, kernel=3, stride=2)
    for stage, (count, out) in enumerate(zip(units, channels[1:], strict=True), start=1):
        for unit in range(1, count + 1):
            stride = 2 if unit == 1 and stage > 1 else 1
            x = _residual_unit(table, f"stage{stage}.unit{unit}", x, out, stride, bottleneck)
    x = table.norm_relu("head", "", x)
    return Architecture(name, image, classes, table.classify(x, classes))


def _residual_unit(
    table: _Table, name: str, x: str, out: int, stride: int, bottleneck: bool
) -> str:
    plan = [(out, 3, stride), (out, 3, 1)]
    if bottleneck:
        plan = [(out // 4, 1, 1), (out // 4, 3, stride), (out, 1, 1)]
    y = active = table.norm_relu(name, "1", x)
    for number, (width, kernel, step) in enumerate(plan, start=1):
        if number > 1:
            y = table.norm_relu(name, str(number), y)
        y = table.add("conv", f"{name}.conv{number}", y, out=width, kernel=kernel, stride=step)
    # If the shape changes, the shortcut must change it too; it starts after the first ReLU.
    if table.channels[x] != out or stride != 1:
        x = table.add("conv", f"{name}.shortcut", active, out=out, stride=stride)
    return table.add("add", f"{name}.sum", y, x)


def inverted_residuals(
    name: str,
    image: tuple[int, int, int],
    classes: int,
    *,
    stem: int,
    stages: tuple[tuple[int, int, int, int], ...],
    features: int,
) -> Architecture:
    """Return a network of inverted residual units.

    `stem` is the number of channels after the first convolution, `features` that after the last.
    `stages` lists for each stage, as in the paper's table 2, the expansion factor of a unit, the
    channels after the stage, its number of units, and the stride of its first unit.
    """
    table = _Table(image[0])
    x = table.conv_norm("stem", "", "data", out=stem, kernel=3, stride=2)
    for stage, (expansion, out, units, first) in enumerate(stages, start=1):
        for number in range(1, units + 1):
            unit, read = f"stage{stage}.unit{number}", table.channels[x]
            stride, middle = first if number == 1 else 1, read * expansion
            y = x if expansion == 1 else table.conv_norm(unit, "_expand", x, out=middle)
            y = table.conv_norm(unit, "_depthwise", y, kernel=3, stride=stride, groups=middle)
            y = table.conv_norm(unit, "_project", y, linear=True, out=out)
            x = y if stride != 1 or read != out else table.add("add", f"{unit}.sum", y, x)
    x = table.conv_norm("head", "", x, out=features)
    return Architecture(name, image, classes, table.classify(x, classes))


_IMAGENET: tuple[tuple[int, int, int], int] = (3, 224, 224), 1000

#: The architecture of the ONNX model zoo's resnet50-v2-7.onnx (MXNet Gluon's resnet50_v2).
RESNET50 = resnet_v2(
    "resnet50_v2", *_IMAGENET, (3, 4, 6, 3), (64, 256, 512, 1024, 2048), bottleneck=True
)

#: The smallest common ResNet v2, with two 3x3 convolutions per unit (MXNet Gluon's resnet18_v2).
RESNET18 = resnet_v2("resnet18_v2", *_IMAGENET, (2, 2, 2, 2), (64, 64, 128, 256, 512))

#: A small network for 8x8 images of digits. Widths are multiples of 16 for vector units.
DIGITS = resnet_v2("digits_resnet", (1, 8, 8), 10, (1, 1, 1), (16, 16, 32, 64), small=True)

#: MobileNetV2 of width 1.0, as in the paper's table 2 and in torchvision's mobilenet_v2.
MOBILENET = inverted_residuals(
    "mobilenet_v2",
    *_IMAGENET,
    stem=32,
    stages=(
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ),
    features=1280,
)

#: The workbook's networks by name.
ARCHITECTURES = {spec.name: spec for spec in (RESNET50, RESNET18, MOBILENET, DIGITS)}
