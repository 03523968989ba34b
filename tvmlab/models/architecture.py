"""One description of ResNet v2 for both networks and both forms.

ResNet v2 (He et al., "Identity Mappings in Deep Residual Networks", 2016) normalises and rectifies
*before* each convolution, so that the residual path is nothing but additions. `ResNetV2.layers()`
lists a network as a table; `onnx_form` and `torch_form` each turn that table into a model with one
entry per operator. A parameter has the same name in the table, in the ONNX file and in the torch
`state_dict`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .seeds import normal, uniform

__all__ = ["DIGITS", "EPSILON", "RESNET50", "Layer", "Parameters", "ResNetV2", "seeded_parameters"]

#: Added to a variance before its root is taken; Gluon's, ONNX's and PyTorch's default.
EPSILON = 1e-5

Operator = Literal[
    "batch_norm", "conv", "relu", "max_pool", "add", "global_pool", "flatten", "dense"
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
    """

    op: Operator
    name: str
    inputs: tuple[str, ...]
    channels: tuple[int, int]
    kernel: int = 1
    stride: int = 1

    @property
    def padding(self) -> int:
        """Zeros on each side, so that a stride of one keeps the size."""
        return self.kernel // 2

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the layer's parameters, in PyTorch's order."""
        in_channels, out_channels = self.channels
        match self.op:
            case "batch_norm":
                names = ("weight", "bias", "running_mean", "running_var")
                return {f"{self.name}.{name}": (out_channels,) for name in names}
            case "conv":
                return {
                    f"{self.name}.weight": (out_channels, in_channels, self.kernel, self.kernel)
                }
            case "dense":
                return {
                    f"{self.name}.weight": (out_channels, in_channels),
                    f"{self.name}.bias": (out_channels,),
                }
            case _:
                return {}


@dataclass(frozen=True)
class ResNetV2:
    """A pre-activation residual network.

    Parameters
    ----------
    name : str
        The network's name.
    image : tuple of int
        Channels, height and width of one input picture.
    classes : int
        Length of the output.
    block : {"basic", "bottleneck"}
        Two 3x3 convolutions a unit, or 1x1, 3x3, 1x1 with a quarter of the channels inside.
    units : tuple of int
        Residual units in each stage. Each stage but the first halves height and width.
    channels : tuple of int
        Channels after the stem, then after each stage: one more entry than `units`.
    stem : {"imagenet", "cifar"}
        A 7x7 convolution with stride 2 and a 3x3 pooling with stride 2, for large pictures; or one
        3x3 convolution, for small ones.
    """

    name: str
    image: tuple[int, int, int]
    classes: int
    block: Literal["basic", "bottleneck"]
    units: tuple[int, ...]
    channels: tuple[int, ...]
    stem: Literal["imagenet", "cifar"] = "imagenet"

    def layers(self) -> tuple[Layer, ...]:
        """List the network's operators in an order in which they can run."""
        table = _Table()
        width = self.channels[0]
        x = table.add("batch_norm", "data_norm", "data", channels=(self.image[0],) * 2)
        if self.stem == "imagenet":
            x = table.add(
                "conv", "stem.conv", x, channels=(self.image[0], width), kernel=7, stride=2
            )
            x = table.norm_relu("stem", "", x, width)
            x = table.add("max_pool", "stem.pool", x, channels=(width, width), kernel=3, stride=2)
        else:
            x = table.add("conv", "stem.conv", x, channels=(self.image[0], width), kernel=3)
        in_channels = width
        for stage, (units, out_channels) in enumerate(
            zip(self.units, self.channels[1:], strict=True), start=1
        ):
            for unit in range(1, units + 1):
                stride = 2 if unit == 1 and stage > 1 else 1
                x = self._unit(
                    table, f"stage{stage}.unit{unit}", x, in_channels, out_channels, stride
                )
                in_channels = out_channels
        x = table.norm_relu("head", "", x, in_channels)
        x = table.add("global_pool", "head.pool", x, channels=(in_channels, in_channels))
        x = table.add("flatten", "head.flatten", x, channels=(in_channels, in_channels))
        table.add("dense", "logits", x, channels=(in_channels, self.classes))
        return tuple(table.rows)

    def _unit(
        self, table: _Table, name: str, x: str, in_channels: int, out_channels: int, stride: int
    ) -> str:
        """Add one residual unit; its output's name."""
        active = table.norm_relu(name, "1", x, in_channels)
        if self.block == "bottleneck":
            inner = out_channels // 4
            plan = [
                (in_channels, inner, 1, 1),
                (inner, inner, 3, stride),
                (inner, out_channels, 1, 1),
            ]
        else:
            plan = [(in_channels, out_channels, 3, stride), (out_channels, out_channels, 3, 1)]
        y = active
        for number, (source, target, kernel, step) in enumerate(plan, start=1):
            if number > 1:
                y = table.norm_relu(name, str(number), y, source)
            y = table.add(
                "conv",
                f"{name}.conv{number}",
                y,
                channels=(source, target),
                kernel=kernel,
                stride=step,
            )
        # Where the shape changes, the shortcut must change it too; it starts behind the first ReLU.
        if in_channels != out_channels or stride != 1:
            x = table.add(
                "conv",
                f"{name}.shortcut",
                active,
                channels=(in_channels, out_channels),
                stride=stride,
            )
        return table.add("add", f"{name}.sum", y, x, channels=(out_channels, out_channels))

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of every parameter, in the order of the layers."""
        return {
            name: shape for layer in self.layers() for name, shape in layer.parameters().items()
        }


class _Table:
    """Rows of layers, added one by one."""

    def __init__(self) -> None:
        self.rows: list[Layer] = []

    def add(
        self,
        op: Operator,
        name: str,
        *inputs: str,
        channels: tuple[int, int],
        kernel: int = 1,
        stride: int = 1,
    ) -> str:
        self.rows.append(Layer(op, name, inputs, channels, kernel, stride))
        return name

    def norm_relu(self, prefix: str, number: str, x: str, channels: int) -> str:
        both = (channels, channels)
        x = self.add("batch_norm", f"{prefix}.norm{number}", x, channels=both)
        return self.add("relu", f"{prefix}.relu{number}", x, channels=both)


#: The architecture of the ONNX model zoo's resnet50-v2-7.onnx (MXNet Gluon's resnet50_v2).
RESNET50 = ResNetV2(
    name="resnet50_v2",
    image=(3, 224, 224),
    classes=1000,
    block="bottleneck",
    units=(3, 4, 6, 3),
    channels=(64, 256, 512, 1024, 2048),
)

#: A small network for 8x8 pictures of digits. Widths are multiples of 16 for vector units.
DIGITS = ResNetV2(
    name="digits_resnet",
    image=(1, 8, 8),
    classes=10,
    block="basic",
    units=(1, 1, 1),
    channels=(16, 16, 32, 64),
    stem="cifar",
)


def seeded_parameters(spec: ResNetV2, seed: int, *, identity_norms: bool = False) -> Parameters:
    """Random parameters, the same bytes on every machine.

    Parameters
    ----------
    spec : ResNetV2
        The network.
    seed : int
        Another seed, another network.
    identity_norms : bool, optional
        True leaves batch norms the identity, as before training. False gives each one a scale, a
        shift, a mean and a variance of its own, so that a compiler that folds them wrongly is seen.

    Returns
    -------
    dict of str to ndarray
        float32 arrays with the names and shapes of `spec.parameters()`.

    Notes
    -----
    Convolutions have He's deviation, sqrt(2 / fan-in). Each filter is centred: what a ReLU hands on
    is positive, and a centred filter does not let that common offset grow from layer to layer until
    it drowns the picture. A batch norm's variance is the one expected at that place, so that
    activations stay of order one through all the layers.
    """
    values: Parameters = {}
    spread = {"data": 1.0}  # the variance expected at each layer's output
    for number, layer in enumerate(spec.layers()):
        shapes = layer.parameters()
        before = sum(spread[name] for name in layer.inputs)
        spread[layer.name] = before
        source = np.random.PCG64([seed, number])
        if layer.op == "batch_norm":
            spread[layer.name] = 1.0
            arrays = _norm(layer, before, source, identity_norms)
        elif layer.op in ("conv", "dense"):
            weight, *rest = shapes.values()
            std = math.sqrt(2.0 / math.prod(weight[1:]))
            arrays = [normal(source, weight, std, centred=layer.channels[0] > 3)]
            arrays += [np.zeros(shape, np.float32) for shape in rest]
            spread[layer.name] = 2.0 * before
        else:
            # A rectified normal variable has the variance 1/2 - 1/(2 pi). The largest of nine has
            # about six times that as its mean square.
            spread[layer.name] = {"relu": 0.34, "max_pool": 6.0}.get(layer.op, 1.0) * before
            arrays = []
        values.update(zip(shapes, arrays, strict=True))
    return values


def _norm(
    layer: Layer, before: float, source: np.random.PCG64, identity: bool
) -> list[npt.NDArray[np.float32]]:
    """Scale, shift, mean and variance of one batch norm."""
    shape = (layer.channels[1],)
    ones, zeros = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    if identity:
        return [ones, zeros, zeros.copy(), ones.copy()]
    scale, shift = uniform(source, shape, 0.75, 1.25), uniform(source, shape, -0.1, 0.1)
    if layer.name == "data_norm":  # Gluon's opening norm has neither
        scale, shift = ones, zeros
    around = 0.1 * math.sqrt(before)
    mean = uniform(source, shape, -around, around)
    return [scale, shift, mean, uniform(source, shape, 0.75 * before, 1.25 * before)]
