"""A multilayer perceptron of three layers, as ``relay.testing.mlp``."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ..analysis import free_vars
from ..expr import Function, var
from ..op import function
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def get_net(
    batch_size: int,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> relax.Function:
    """Make the network: 128, 64 and `num_classes` units.

    Parameters
    ----------
    batch_size, num_classes : int
        Pictures in a batch, and classes.
    image_shape : tuple of int
        One picture's shape.
    dtype : str
        Of everything.
    """
    relu, softmax = function("nn.relu"), function("nn.softmax")
    x: Any = function("nn.batch_flatten")(
        var("data", shape=(batch_size, *image_shape), dtype=dtype)
    )
    x = relu(layers.dense_add_bias(x, units=128, name="fc1"))
    x = relu(layers.dense_add_bias(x, units=64, name="fc2"))
    x = softmax(layers.dense_add_bias(x, units=num_classes, name="fc3"))
    return Function(free_vars(x), x)


def get_workload(
    batch_size: int,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make the network's module, and values for its parameters; see `get_net`."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
