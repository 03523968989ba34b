"""MobileNetV2: depthwise convolutions between narrow layers.

MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) turns
a residual unit inside out: its ends are narrow and its middle is wide, and only a depthwise
convolution, nine numbers per channel, works in the middle. The narrow ends have no ReLU, because
that would discard half of the little they carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .architecture import Architecture, Layer, Table

__all__ = ["MOBILENET", "MobileNetV2"]


@dataclass(frozen=True)
class MobileNetV2(Architecture):
    """A network of inverted residual units.

    Parameters
    ----------
    name, image, classes
        As for every `Architecture`.
    stem : int
        Channels after the first convolution, which is 3x3 and halves height and width.
    stages : tuple of tuple of int
        For each stage, as in the paper's table 2: how many times wider a unit's middle is than its
        input, the channels after the stage, its units, and the stride of the first of them.
    features : int
        Channels after the last convolution.
    """

    stem: int
    stages: tuple[tuple[int, int, int, int], ...]
    features: int

    def layers(self) -> tuple[Layer, ...]:
        """List the network's operators in an order in which they can run."""
        table = Table(self.image[0])
        x = _conv_norm(table, "stem", "", "data", out=self.stem, kernel=3, stride=2)
        for stage, (expansion, channels, units, first) in enumerate(self.stages, start=1):
            for unit in range(1, units + 1):
                stride = first if unit == 1 else 1
                x = _unit(table, f"stage{stage}.unit{unit}", x, expansion, channels, stride)
        x = _conv_norm(table, "head", "", x, out=self.features)
        table.classify(x, self.classes)
        return tuple(table.rows)


def _unit(table: Table, name: str, x: str, expansion: int, channels: int, stride: int) -> str:
    """Add one inverted residual unit; its output's name."""
    read = table.channels[x]
    middle = read * expansion
    y = x if expansion == 1 else _conv_norm(table, name, "_expand", x, out=middle)
    y = _conv_norm(table, name, "_depthwise", y, kernel=3, stride=stride, groups=middle)
    y = _conv_norm(table, name, "_project", y, linear=True, out=channels)
    return y if stride != 1 or read != channels else table.add("add", f"{name}.sum", y, x)


def _conv_norm(
    table: Table, prefix: str, suffix: str, x: str, *, linear: bool = False, **sizes: Any
) -> str:
    """Add a convolution, its batch norm and, unless it is linear, a ReLU that stops at six."""
    x = table.add("conv", f"{prefix}.conv{suffix}", x, **sizes)
    x = table.add("batch_norm", f"{prefix}.norm{suffix}", x)
    return x if linear else table.add("relu6", f"{prefix}.relu{suffix}", x)


#: MobileNetV2 of width 1.0, as in the paper's table 2 and in torchvision's mobilenet_v2.
MOBILENET = MobileNetV2(
    name="mobilenet_v2",
    image=(3, 224, 224),
    classes=1000,
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
