"""DenseNet, as ``relay.testing.densenet`` has it.

The paper is "Densely Connected Convolutional Networks". As in Relay's version, and not as in the
paper, a layer sees the one before it only, and a block's end alone puts its layers side by side.
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

# The first convolution's channels, each layer's, and the layers of each block. Relay has 69 where
# the paper has 64.
_SIZES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (69, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
_BOTTLENECK = 4


def _active(x: relax.Expr, name: str) -> Any:
    """Normalize, and drop what is negative."""
    return function("nn.relu")(layers.batch_norm_infer(x, name=name))


def _layer(x: relax.Expr, index: str, growth: int) -> Any:
    """Narrow to some times the layer's channels, then convolve to them."""
    x = layers.conv2d(
        _active(x, f"batch_1_{index}"),
        name=f"conv2d_1_{index}",
        channels=_BOTTLENECK * growth,
        kernel_size=(1, 1),
    )
    return layers.conv2d(
        _active(x, f"batch_2_{index}"),
        name=f"conv2d_2_{index}",
        channels=growth,
        kernel_size=(3, 3),
        padding=(1, 1),
    )


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    densenet_size : int
        121, 161, 169 or 201 layers.
    classes, batch_size : int
        Classes, and pictures in a batch.
    image_shape : tuple of int
        One picture's shape: channels, height, width; the last two at least 221.
    dtype : str
        Of everything.

    Raises
    ------
    RelayError
        There is no network of so many layers.
    """
    if densenet_size not in _SIZES:
        raise RelayError(
            f"there is no DenseNet of {densenet_size} layers",
            where="relay.testing.densenet",
            fix=f"use one of {', '.join(map(str, _SIZES))}",
        )
    features, growth, blocks = _SIZES[densenet_size]
    avg_pool = function("nn.avg_pool2d")
    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = layers.conv2d(
        x, name="conv1", channels=features, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3)
    )
    x = function("nn.max_pool2d")(
        _active(x, "batch1"), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)
    )
    for block, count in enumerate(blocks):
        outputs = []
        for number in range(count):
            x = _layer(x, f"{block}_{number}", growth)
            outputs.append(x)
        x = function("concatenate")(outputs, axis=1)
        features += count * growth
        if block < len(blocks) - 1:
            features //= 2
            x = layers.conv2d(
                _active(x, f"batch_t_{block}"),
                name=f"conv_t_{block}",
                channels=features,
                kernel_size=(1, 1),
            )
            x = avg_pool(x, pool_size=(2, 2), strides=(2, 2))
    x = function("nn.batch_flatten")(avg_pool(_active(x, "batch2"), pool_size=(7, 7)))
    x = layers.dense_add_bias(x, units=classes, name="dense")
    return Function(free_vars(x), x)


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(densenet_size, classes, batch_size, image_shape, dtype))
