"""SqueezeNet, as ``relay.testing.squeezenet`` has it.

The paper is "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters".
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

# The first convolution's channels and kernel, and the fires before which pictures get smaller.
_VERSIONS = {"1.0": (96, 7, (1, 4, 8)), "1.1": (64, 3, (1, 3, 5))}
# What each fire squeezes to; each of its two halves is four times as wide.
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)


def _conv(x: relax.Expr, name: str, channels: int, size: int, stride: int = 1) -> Any:
    """Convolve, add a bias, and drop what is negative."""
    return function("nn.relu")(
        layers.conv2d_add_bias(
            x,
            name,
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(size // 2, size // 2),
        )
    )


def _fire(x: relax.Expr, name: str, channels: int) -> Any:
    """Squeeze, then widen with kernels of two sizes side by side."""
    x = _conv(x, f"{name}_input_conv", channels, 1)
    left = _conv(x, f"{name}_left_conv", 4 * channels, 1)
    right = _conv(x, f"{name}_right_conv", 4 * channels, 3)
    return function("concatenate")((left, right), axis=1)


def get_net(
    batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    batch_size : int
        Pictures in a batch.
    image_shape : tuple of int
        One picture's shape: channels, height, width.
    num_classes : int
        Classes.
    version : str
        ``"1.0"`` or ``"1.1"``.
    dtype : str
        Of everything.

    Raises
    ------
    RelayError
        There is no such version.
    """
    if version not in _VERSIONS:
        raise RelayError(
            f"there is no SqueezeNet of version {version!r}",
            where="relay.testing.squeezenet",
            fix="use '1.0' or '1.1'",
        )
    channels, size, pooled = _VERSIONS[version]
    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = _conv(x, "conv1", channels, size, stride=2)
    for number, squeezed in enumerate(_SQUEEZED, 1):
        if number in pooled:
            x = function("nn.max_pool2d")(x, pool_size=(3, 3), strides=(2, 2))
        x = _fire(x, f"fire{number}", squeezed)
    x = _conv(function("nn.dropout")(x, rate=0.5), "conv_final", num_classes, 1)
    x = function("nn.batch_flatten")(function("nn.global_avg_pool2d")(x))
    x = function("nn.softmax")(x)
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))
