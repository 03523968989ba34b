"""The deep Q network, as ``relay.testing.dqn`` has it.

The paper is "Human-level control through deep reinforcement learning".
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]

# Channels, kernel and stride.
_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> relax.Function:
    """Make the network.

    Parameters
    ----------
    batch_size, num_actions : int
        Pictures in a batch, and what the player can do.
    image_shape : tuple of int
        One picture's shape, in the order of `layout`.
    dtype : str
        Of everything.
    layout : str
        ``"NCHW"`` or ``"NHWC"``.
    """
    relu = function("nn.relu")
    x: Any = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for number, (channels, size, stride) in enumerate(_CONVOLUTIONS, 1):
        x = layers.conv2d_add_bias(
            x,
            f"conv{number}",
            bias_axis=layout.index("C"),
            channels=channels,
            kernel_size=(size, size),
            strides=(stride, stride),
            padding=(0, 0),
            data_layout=layout,
            kernel_layout=layers.conv_kernel_layout(layout),
        )
        x = relu(x)
    x = layers.dense_add_bias(function("nn.batch_flatten")(x), units=512, name="dense1")
    x = layers.dense_add_bias(relu(x), units=num_actions, name="dense2")
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout))
