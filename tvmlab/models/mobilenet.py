"""MobileNetV2: depthwise convolutions between narrow layers.

MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) turns
a residual unit inside out: its ends are narrow and its middle is wide, and only a depthwise
convolution, nine numbers a channel, works in the middle. The narrow ends are not rectified, since
that would throw away half of the little they carry.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        table = Table()
        x = _conv_norm(table, "stem", "", "data", (self.image[0], self.stem), kernel=3, stride=2)
        in_channels = self.stem
        for stage, (expansion, out_channels, units, first) in enumerate(self.stages, start=1):
            for unit in range(1, units + 1):
                stride = first if unit == 1 else 1
                name, channels = f"stage{stage}.unit{unit}", (in_channels, out_channels)
                x = _unit(table, name, x, channels, in_channels * expansion, stride)
                in_channels = out_channels
        x = _conv_norm(table, "head", "", x, (in_channels, self.features))
        table.classify(x, self.features, self.classes)
        return tuple(table.rows)


def _unit(
    table: Table, name: str, x: str, channels: tuple[int, int], middle: int, stride: int
) -> str:
    """Add one inverted residual unit; its output's name."""
    in_channels, out_channels = channels
    y = x
    if middle != in_channels:
        y = _conv_norm(table, name, "_expand", y, (in_channels, middle))
    y = _conv_norm(
        table, name, "_depthwise", y, (middle, middle), kernel=3, stride=stride, groups=middle
    )
    y = _conv_norm(table, name, "_project", y, (middle, out_channels), linear=True)
    if stride != 1 or in_channels != out_channels:
        return y
    return table.add("add", f"{name}.sum", y, x, channels=channels)


def _conv_norm(
    table: Table,
    prefix: str,
    suffix: str,
    x: str,
    channels: tuple[int, int],
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    linear: bool = False,
) -> str:
    """Add a convolution, its batch norm and, unless it is linear, a ReLU that stops at six."""
    both = (channels[1], channels[1])
    x = table.add(
        "conv",
        f"{prefix}.conv{suffix}",
        x,
        channels=channels,
        kernel=kernel,
        stride=stride,
        groups=groups,
    )
    x = table.add("batch_norm", f"{prefix}.norm{suffix}", x, channels=both)
    return x if linear else table.add("relu6", f"{prefix}.relu{suffix}", x, channels=both)


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
