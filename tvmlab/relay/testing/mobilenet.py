"""MobileNet of the first version, as ``relay.testing.mobilenet`` has it."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_workload", "mobile_net"]

# Channels after each pair of a depthwise and a pointwise convolution, and the first one's stride.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
_SHALLOW = (*_BLOCKS[:6], (1024, 2), (1024, 2))


def _block(x: relax.Expr, name: str, bn: str, layout: str, depthwise: bool, **kwargs: Any) -> Any:
    """Convolve, normalize, and drop what is negative."""
    kernel = layers.conv_kernel_layout(layout, depthwise)
    x = layers.conv2d(x, name=name, data_layout=layout, kernel_layout=kernel, **kwargs)
    x = layers.batch_norm_infer(x, name=bn, epsilon=1e-5, axis=layout.index("C"))
    return function("nn.relu")(x)


def mobile_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    num_classes : int
        Classes.
    data_shape : tuple of int
        A batch's shape, in the order of `layout`.
    dtype : str
        Of everything.
    alpha : float
        Multiplies all channels.
    is_shallow : bool
        Leave out the five blocks in the middle.
    layout : str
        ``"NCHW"`` or ``"NHWC"``.
    """
    x: Any = var("data", shape=data_shape, dtype=dtype)
    channels = int(32 * alpha)
    x = _block(
        x, "conv_block_1_conv", "conv_block_1_bn", layout, False,
        channels=channels, kernel_size=(3, 3), strides=(2, 2), padding=(1, 1),
    )  # fmt: skip
    for number, (wide, stride) in enumerate(_SHALLOW if is_shallow else _BLOCKS, 1):
        name = f"separable_conv_block_{number}"
        x = _block(
            x, f"{name}_depthwise_conv1", f"{name}_bn1", layout, True,
            channels=channels, groups=channels, kernel_size=(3, 3),
            strides=(stride, stride), padding=(1, 1),
        )  # fmt: skip
        channels = int(wide * alpha)
        x = _block(
            x, f"{name}_conv2", f"{name}_bn2", layout, False,
            channels=channels, kernel_size=(1, 1),
        )  # fmt: skip
    x = function("nn.batch_flatten")(function("nn.global_avg_pool2d")(x, layout=layout))
    x = function("nn.softmax")(layers.dense_add_bias(x, units=num_classes, name="fc"))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `mobile_net`."""
    shape = (batch_size, *image_shape)
    return create_workload(mobile_net(num_classes, shape, dtype, layout=layout))
