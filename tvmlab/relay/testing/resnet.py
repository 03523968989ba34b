"""ResNet of the second version, as ``relay.testing.resnet`` has it.

The paper is "Identity Mappings in Deep Residual Networks".
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ...errors import RelayError
from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

_UNITS = {
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
}


class _Builder:
    """Layers of one data layout."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.kernel = layers.conv_kernel_layout(layout)

    def active(self, x: relax.Expr, name: str) -> relax.Expr:
        axis = self.layout.index("C")
        normal = layers.batch_norm_infer(x, name=name, epsilon=2e-5, axis=axis)
        return function("nn.relu")(normal)

    def conv(self, x: relax.Expr, name: str, channels: int, size: int, stride: int) -> relax.Expr:
        return layers.conv2d(
            x,
            name=name,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            data_layout=self.layout,
            kernel_layout=self.kernel,
        )

    def unit(
        self, x: relax.Expr, name: str, channels: int, stride: int, bottleneck: bool, same: bool
    ) -> relax.Expr:
        """Add what a row of convolutions makes of the data to the data, or to a projection."""
        inner = channels // 4
        steps = (
            [(inner, 1, stride), (inner, 3, 1), (channels, 1, 1)]
            if bottleneck
            else [(channels, 3, stride), (channels, 3, 1)]
        )
        first, y = None, x
        for number, (filters, size, step) in enumerate(steps, 1):
            y = self.active(y, f"{name}_bn{number}")
            first = y if first is None else first
            y = self.conv(y, f"{name}_conv{number}", filters, size, step)
        shortcut = x if same else self.conv(first, f"{name}_sc", channels, 1, stride)
        return function("add")(y, shortcut)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **_: Any,
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    batch_size, num_classes : int
        Pictures in a batch, and classes.
    num_layers : int
        18, 34, 50, 101 or 152; for pictures of 28 pixels or less 6n + 2.
    image_shape : tuple of int
        One picture's shape, in the order of `layout`.
    layout : str
        ``"NCHW"`` or ``"NHWC"``.
    dtype : str
        Of everything.

    Raises
    ------
    RelayError
        There is no network of so many layers.
    """
    make = _Builder(layout)
    height = image_shape[layout.index("H") - 1]
    small, bottleneck = height <= 28, num_layers >= 50 and height > 28
    if small and (num_layers - 2) % 6 == 0:
        units, widths = [(num_layers - 2) // 6] * 3, [16, 16, 32, 64]
    elif not small and num_layers in _UNITS:
        units = _UNITS[num_layers]
        widths = [64, 256, 512, 1024, 2048] if bottleneck else [64, 64, 128, 256, 512]
    else:
        raise RelayError(
            f"there is no ResNet of {num_layers} layers for pictures of {height} pixels",
            where="relay.testing.resnet",
            fix=f"use one of {', '.join(map(str, _UNITS))}; for 28 pixels or less 8, 14, 20, ...",
        )
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    axis = layout.index("C")
    x = layers.batch_norm_infer(data, name="bn_data", epsilon=2e-5, axis=axis, scale=False)
    if height <= 32:
        x = make.conv(x, "conv0", widths[0], 3, 1)
    else:
        x = make.active(make.conv(x, "conv0", widths[0], 7, 2), "bn0")
        x = function("nn.max_pool2d")(
            x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout
        )
    for stage, (count, channels) in enumerate(zip(units, widths[1:], strict=True), 1):
        for unit in range(count):
            stride = 2 if unit == 0 and stage > 1 else 1
            name = f"stage{stage}_unit{unit + 1}"
            x = make.unit(x, name, channels, stride, bottleneck, same=unit > 0)
    x = function("nn.global_avg_pool2d")(make.active(x, "bn1"), layout=layout)
    x = layers.dense_add_bias(function("nn.batch_flatten")(x), units=num_classes, name="fc1")
    x = function("nn.softmax")(x)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **kwargs: Any,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(
        get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype, **kwargs)
    )
