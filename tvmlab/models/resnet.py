"""ResNet v2, in three sizes.

ResNet v2 (He et al., "Identity Mappings in Deep Residual Networks", 2016) normalises and rectifies
*before* each convolution, so that the residual path is nothing but additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .architecture import Architecture, Layer, Table

__all__ = ["DIGITS", "RESNET18", "RESNET50", "ResNetV2"]


@dataclass(frozen=True)
class ResNetV2(Architecture):
    """A pre-activation residual network.

    Parameters
    ----------
    name, image, classes
        As for every `Architecture`.
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

    block: Literal["basic", "bottleneck"]
    units: tuple[int, ...]
    channels: tuple[int, ...]
    stem: Literal["imagenet", "cifar"] = "imagenet"

    def layers(self) -> tuple[Layer, ...]:
        """List the network's operators in an order in which they can run."""
        table = Table(self.image[0])
        width, *stages = self.channels
        x = table.add("batch_norm", "data_norm", "data")
        if self.stem == "imagenet":
            x = table.add("conv", "stem.conv", x, out=width, kernel=7, stride=2)
            x = _norm_relu(table, "stem", "", x)
            x = table.add("max_pool", "stem.pool", x, kernel=3, stride=2)
        else:
            x = table.add("conv", "stem.conv", x, out=width, kernel=3)
        for stage, (units, channels) in enumerate(zip(self.units, stages, strict=True), start=1):
            for unit in range(1, units + 1):
                stride = 2 if unit == 1 and stage > 1 else 1
                x = self._unit(table, f"stage{stage}.unit{unit}", x, channels, stride)
        x = _norm_relu(table, "head", "", x)
        table.classify(x, self.classes)
        return tuple(table.rows)

    def _unit(self, table: Table, name: str, x: str, channels: int, stride: int) -> str:
        """Add one residual unit; its output's name."""
        if self.block == "bottleneck":
            inner = channels // 4
            plan = [(inner, 1, 1), (inner, 3, stride), (channels, 1, 1)]
        else:
            plan = [(channels, 3, stride), (channels, 3, 1)]
        y = active = _norm_relu(table, name, "1", x)
        for number, (out, kernel, step) in enumerate(plan, start=1):
            if number > 1:
                y = _norm_relu(table, name, str(number), y)
            y = table.add("conv", f"{name}.conv{number}", y, out=out, kernel=kernel, stride=step)
        # Where the shape changes, the shortcut must change it too; it starts behind the first ReLU.
        if table.channels[x] != channels or stride != 1:
            x = table.add("conv", f"{name}.shortcut", active, out=channels, stride=stride)
        return table.add("add", f"{name}.sum", y, x)


def _norm_relu(table: Table, prefix: str, number: str, x: str) -> str:
    x = table.add("batch_norm", f"{prefix}.norm{number}", x)
    return table.add("relu", f"{prefix}.relu{number}", x)


#: The architecture of the ONNX model zoo's resnet50-v2-7.onnx (MXNet Gluon's resnet50_v2).
RESNET50 = ResNetV2(
    name="resnet50_v2",
    image=(3, 224, 224),
    classes=1000,
    block="bottleneck",
    units=(3, 4, 6, 3),
    channels=(64, 256, 512, 1024, 2048),
)

#: The smallest that is usual, with two 3x3 convolutions a unit (MXNet Gluon's resnet18_v2).
RESNET18 = ResNetV2(
    name="resnet18_v2",
    image=(3, 224, 224),
    classes=1000,
    block="basic",
    units=(2, 2, 2, 2),
    channels=(64, 64, 128, 256, 512),
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
