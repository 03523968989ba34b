"""Relay's helpers for tests, and two of its networks, whose parameters have Relay's names.

The ResNet is the network of "Identity Mappings in Deep Residual Networks".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from ..errors import RelayError
from ..ir import gone
from ..ir.graph import inline_bindings
from . import op, transform
from .analysis import as_function
from .expr import as_expr, var
from .module import from_expr
from .quantized import TempOpAttr as TempOpAttr

__path__: list[str] = []  # see gone.ImportFinder
_VALUES = {"bias": 0.0, "beta": 0.0, "mean": 0.0, "gamma": 1.0, "var": 1.0}


def _fill(name: str, array: np.ndarray) -> None:
    """Fill a parameter by the suffix of its name: weights as Xavier does, others with 0 or 1."""
    if name.endswith("weight") and array.ndim >= 2:
        # A depthwise kernel has one input channel, regardless of its shape.
        seen = 1 if "depthwise" in name else (array.shape[0] + array.shape[1]) / 2
        limit = np.sqrt(3 / (np.prod(array.shape[2:]) * seen))
        array[:] = np.random.uniform(-limit, limit, array.shape)  # noqa: NPY002 - see the seed
        return
    kind = next((kind for kind in _VALUES if name.endswith(kind)), None)
    if kind is None:
        fix = "end it in weight, bias, beta, gamma, mean or var, or give an initializer"
        raise RelayError(f"there are no default values for {name!r}", fix=fix)
    array[:] = _VALUES[kind]


def create_workload(
    net: relax.Function,
    initializer: Callable[[str, np.ndarray], None] | None = None,
    seed: int = 0,
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make a typed module of a network, and values for its parameters except ``data``.

    ``initializer(name, array)`` fills an array, by default as Relay's `Xavier` does.
    """
    mod = from_expr(net)
    np.random.seed(seed)  # noqa: NPY002 - Relay did, and its scripts count on it
    params = {}
    for param in mod["main"].params:
        shape = list(param.ty.shape)
        if param.name != "data" and all(isinstance(size, tirx.IntImm) for size in shape):
            array = np.zeros([int(size) for size in shape], str(param.ty.dtype))
            (initializer or _fill)(param.name, array)
            params[param.name] = tvm.runtime.tensor(array)
    return mod, params


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> relax.Expr:
    """Run a pass, or several passes, on a function or a graph, and return the result."""
    if isinstance(opt_pass, (list, tuple)):
        opt_pass = tvm.transform.Sequential(opt_pass)
    expr = as_expr(expr)
    entry = opt_pass(from_expr(expr))["main"]
    return entry if isinstance(expr, relax.Function) else inline_bindings(entry.body)


def run_infer_type(expr: Any) -> relax.Expr:
    """Infer the types in an expression."""
    return run_opt_pass(expr, transform.InferType())


def batch_norm_infer(data: relax.Expr, name: str = "", **kwargs: Any) -> Any:
    """Apply batch normalization with the parameters ``NAME_gamma``, ``NAME_beta`` and so on."""
    keys = ("gamma", "beta", "moving_mean", "moving_var")
    return op.nn.batch_norm(data, *(var(f"{name}_{key}") for key in keys), **kwargs)[0]


def conv2d(data: relax.Expr, weight: relax.Var | None = None, name: str = "", **kwargs: Any) -> Any:
    """Convolve with a parameter ``NAME_weight`` if no weight is passed."""
    return op.nn.conv2d(data, var(f"{name}_weight") if weight is None else weight, **kwargs)


def dense_add_bias(data: relax.Expr, units: int | None = None, name: str = "") -> Any:
    """Multiply by ``NAME_weight`` and add ``NAME_bias``."""
    product = op.nn.dense(data, var(f"{name}_weight"), units=units)
    return op.nn.bias_add(product, var(f"{name}_bias"), axis=-1)


def _conv(x: Any, name: str, channels: int, size: int, stride: int = 1) -> Any:
    """Convolve with a square kernel and padding that keeps the image size for a stride of 1."""
    window = {"kernel_size": size, "padding": size // 2, "strides": stride}
    return conv2d(x, name=name, channels=channels, **window)


def _active(x: Any, name: str) -> Any:
    return op.nn.relu(batch_norm_infer(x, name=name, epsilon=2e-5))


def _mlp(
    batch_size: int = 1,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make a multilayer perceptron with 128, 64 and `num_classes` units."""
    x = op.nn.batch_flatten(var("data", shape=(batch_size, *image_shape), dtype=dtype))
    for number, units in enumerate((128, 64), 1):
        x = op.nn.relu(dense_add_bias(x, units, f"fc{number}"))
    return create_workload(as_function(op.nn.softmax(dense_add_bias(x, num_classes, "fc3"))))


_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def _resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make a ResNet (version 2) of 18 or 34 layers, for images larger than 32 pixels."""
    if num_layers not in _UNITS or image_shape[1] <= 32:
        what = f"there is no ResNet of {num_layers} layers for images of {image_shape}"
        raise RelayError(what, fix="use 18 or 34 layers, and images above 32 pixels")
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = batch_norm_infer(data, name="bn_data", epsilon=2e-5, scale=False)
    x = _active(_conv(x, "conv0", 64, 7, 2), "bn0")
    x = op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for stage, count in enumerate(_UNITS[num_layers], 1):
        for number in range(1, count + 1):
            name, channels = f"stage{stage}_unit{number}", 32 * 2**stage
            stride = 2 if number == 1 and stage > 1 else 1
            first = _active(x, f"{name}_bn1")
            y = _active(_conv(first, f"{name}_conv1", channels, 3, stride), f"{name}_bn2")
            y = _conv(y, f"{name}_conv2", channels, 3)
            x = op.add(y, x if number > 1 else _conv(first, f"{name}_sc", channels, 1, stride))
    pooled = op.nn.batch_flatten(op.nn.global_avg_pool2d(_active(x, "bn1")))
    logits = dense_add_bias(pooled, num_classes, "fc1")
    return create_workload(as_function(op.nn.softmax(logits)))


def _module(make: Callable[..., Any]) -> ModuleType:
    """Make a module with the functions of a Relay network."""
    name = f"{__name__}.{make.__name__[1:]}"
    module = sys.modules[name] = ModuleType(name, make.__doc__)
    module.get_workload = make  # type: ignore[attr-defined]
    return module


mlp, resnet = _module(_mlp), _module(_resnet)
# Relay's relay.testing.init, layers and temp_op_attr have names that are in this module.
init = layers = temp_op_attr = sys.modules[__name__]
sys.modules |= {f"{__name__}.{name}": init for name in ("init", "layers", "temp_op_attr")}


def __getattr__(name: str) -> Any:
    raise gone.missing("testing", name, globals())
