"""VGG, as ``relay.testing.vgg`` has it.

The paper is "Very Deep Convolutional Networks for Large-Scale Image Recognition".
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

_CHANNELS = (64, 128, 256, 512, 512)
# Convolutions of each stage; three dense layers come after them.
_STAGES = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
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
    dtype : str
        Of everything.
    num_layers : int
        11, 13, 16 or 19.
    batch_norm : bool
        Normalize after each convolution.

    Raises
    ------
    RelayError
        There is no network of so many layers.
    """
    if num_layers not in _STAGES:
        raise RelayError(
            f"there is no VGG of {num_layers} layers",
            where="relay.testing.vgg",
            fix=f"use one of {', '.join(map(str, _STAGES))}",
        )
    relu, dropout = function("nn.relu"), function("nn.dropout")
    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for stage, (count, channels) in enumerate(zip(_STAGES[num_layers], _CHANNELS, strict=True), 1):
        for number in range(1, count + 1):
            x = layers.conv2d_add_bias(
                x,
                f"conv{stage}_{number}",
                channels=channels,
                kernel_size=(3, 3),
                padding=(1, 1),
            )
            if batch_norm:
                x = layers.batch_norm_infer(x, name=f"bn{stage}_{number}")
            x = relu(x)
        x = function("nn.max_pool2d")(x, pool_size=(2, 2), strides=(2, 2))
    x = function("nn.batch_flatten")(x)
    for name in ("fc6", "fc7"):
        x = dropout(relu(layers.dense_add_bias(x, units=4096, name=name)), rate=0.5)
    x = function("nn.softmax")(layers.dense_add_bias(x, units=num_classes, name="fc8"))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(
        get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm)
    )
