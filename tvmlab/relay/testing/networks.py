"""The networks of ``relay.testing``, in code of this project.

The papers are "MobileNets" and "Identity Mappings in Deep Residual Networks". Parameters have the
names that they have in Relay. In each function `image_shape` is the shape of one image, in the
order of the layout, and `dtype` is that of everything.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from ...errors import RelayError
from .. import op
from ..analysis import free_vars
from ..expr import Function, var
from . import layers

__all__ = ["mlp", "mobilenet", "resnet"]

Shape = tuple[int, ...]
Images = tuple[int, int, int]


def _classified(x: Any, name: str, units: int) -> relax.Function:
    """End a network in a dense layer and a softmax."""
    x = op.nn.softmax(layers.dense_add_bias(x, units=units, name=name))
    return Function(free_vars(x), x)


def _pooled(x: Any, layout: str = "NCHW") -> Any:
    return op.nn.batch_flatten(op.nn.global_avg_pool2d(x, layout=layout))


def _conv(x: Any, name: str, channels: int, size: int, stride: int = 1, **kwargs: Any) -> Any:
    """Convolve with a square kernel, so that a stride of 1 keeps the size of the image."""
    return layers.conv2d(
        x,
        name=name,
        channels=channels,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(size // 2, size // 2),
        **kwargs,
    )


def mlp(
    batch_size: int = 1,
    num_classes: int = 10,
    image_shape: Shape = (1, 28, 28),
    dtype: str = "float32",
) -> relax.Function:
    """Make a perceptron of 128, 64 and `num_classes` units."""
    x = op.nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    x = op.nn.relu(layers.dense_add_bias(x, units=128, name="fc1"))
    x = op.nn.relu(layers.dense_add_bias(x, units=64, name="fc2"))
    return _classified(x, "fc3", num_classes)


# Channels after each pair of a depthwise and a pointwise convolution, and the first one's stride.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)


def mobilenet(
    num_classes: int = 1000,
    data_shape: Shape | None = None,
    dtype: str = "float32",
    alpha: float = 1.0,
    layout: str = "NCHW",
    batch_size: int = 1,
    image_shape: Shape = (3, 224, 224),
) -> relax.Function:
    """Make the first MobileNet; `alpha` multiplies all channels."""

    def block(x: Any, name: str, norm: str, *sizes: int, groups: int = 1) -> Any:
        kernel = layers.conv_kernel_layout(layout, groups > 1)
        x = _conv(x, name, *sizes, groups=groups, data_layout=layout, kernel_layout=kernel)
        x = layers.batch_norm_infer(x, name=norm, epsilon=1e-5, axis=layout.index("C"))
        return op.nn.relu(x)

    channels = int(32 * alpha)
    x: Any = var("data", shape=data_shape or (batch_size, *image_shape), dtype=dtype)
    x = block(x, "conv_block_1_conv", "conv_block_1_bn", channels, 3, 2)
    for number, (wide, stride) in enumerate(_BLOCKS, 1):
        name = f"separable_conv_block_{number}"
        names = (f"{name}_depthwise_conv1", f"{name}_bn1")
        x = block(x, *names, channels, 3, stride, groups=channels)
        channels = int(wide * alpha)
        x = block(x, f"{name}_conv2", f"{name}_bn2", channels, 1)
    return _classified(_pooled(x, layout), "fc", num_classes)


_UNITS = {
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
}


def resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 50,
    image_shape: Images = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    **_: Any,
) -> relax.Function:
    """Make the second ResNet, of 18, 34, 50, 101 or 152 layers; for 28 pixels or less, of 6n + 2.

    Raises
    ------
    RelayError
        There is no network of so many layers.
    """
    height = image_shape[layout.index("H") - 1]
    small, bottleneck = height <= 28, num_layers >= 50 and height > 28
    if small and (num_layers - 2) % 6 == 0:
        units, widths = [(num_layers - 2) // 6] * 3, [16, 16, 32, 64]
    elif not small and num_layers in _UNITS:
        units = _UNITS[num_layers]
        widths = [64, 256, 512, 1024, 2048] if bottleneck else [64, 64, 128, 256, 512]
    else:
        fix = f"use one of {', '.join(map(str, _UNITS))}; for 28 pixels or less 8, 14, 20, ..."
        raise RelayError(
            f"there is no ResNet of {num_layers} layers for images of {height} pixels",
            where="relay.testing",
            fix=fix,
        )
    axis = layout.index("C")
    layouts: dict[str, Any] = {
        "data_layout": layout,
        "kernel_layout": layers.conv_kernel_layout(layout),
    }

    def active(x: Any, name: str) -> Any:
        return op.nn.relu(layers.batch_norm_infer(x, name=name, epsilon=2e-5, axis=axis))

    def unit(x: Any, name: str, channels: int, stride: int, same: bool) -> Any:
        """Add the convolved data to the data, or to a projection of the data."""
        inner = channels // 4
        steps = [(channels, 3, stride), (channels, 3, 1)]
        if bottleneck:
            steps = [(inner, 1, stride), (inner, 3, 1), (channels, 1, 1)]
        first, y = None, x
        for number, step in enumerate(steps, 1):
            y = active(y, f"{name}_bn{number}")
            first = y if first is None else first
            y = _conv(y, f"{name}_conv{number}", *step, **layouts)
        shortcut = x if same else _conv(first, f"{name}_sc", channels, 1, stride, **layouts)
        return op.add(y, shortcut)

    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = layers.batch_norm_infer(x, name="bn_data", epsilon=2e-5, axis=axis, scale=False)
    if height <= 32:
        x = _conv(x, "conv0", widths[0], 3, **layouts)
    else:
        x = active(_conv(x, "conv0", widths[0], 7, 2, **layouts), "bn0")
        x = op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for stage, (count, channels) in enumerate(zip(units, widths[1:], strict=True), 1):
        for number in range(count):
            stride = 2 if number == 0 and stage > 1 else 1
            x = unit(x, f"stage{stage}_unit{number + 1}", channels, stride, number > 0)
    return _classified(_pooled(active(x, "bn1"), layout), "fc1", num_classes)
