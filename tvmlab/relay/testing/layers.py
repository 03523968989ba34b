"""Layers that make their own parameters, as Relay's networks use them."""

from __future__ import annotations

from typing import Any

from tvm import relax

from .. import op
from ..expr import var

__all__ = [
    "batch_norm_infer",
    "conv2d",
    "conv_kernel_layout",
    "dense_add_bias",
]


def _or_new(given: relax.Expr | None, name: str) -> relax.Expr:
    """Return what was given, or a new parameter; an expression has no truth value."""
    return var(name) if given is None else given


def batch_norm_infer(
    data: relax.Expr,
    gamma: relax.Var | None = None,
    beta: relax.Var | None = None,
    moving_mean: relax.Var | None = None,
    moving_var: relax.Var | None = None,
    name: str = "",
    **kwargs: Any,
) -> relax.Expr:
    """Normalize, with the parameters ``NAME_gamma``, ``NAME_beta`` and so on."""
    given = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    made = {key: _or_new(value, f"{name}_{key}") for key, value in given.items()}
    return op.nn.batch_norm(data, *made.values(), **kwargs)[0]


def conv2d(data: relax.Expr, weight: relax.Var | None = None, name: str = "", **kwargs: Any) -> Any:
    """Convolve, with a parameter ``NAME_weight`` where no weight is given."""
    return op.nn.conv2d(data, _or_new(weight, f"{name}_weight"), **kwargs)


def dense_add_bias(
    data: relax.Expr,
    weight: relax.Var | None = None,
    bias: relax.Var | None = None,
    units: int | None = None,
    name: str = "",
) -> relax.Expr:
    """Multiply with ``NAME_weight`` and add ``NAME_bias``."""
    product = op.nn.dense(data, _or_new(weight, f"{name}_weight"), units=units)
    return op.nn.bias_add(product, _or_new(bias, f"{name}_bias"), axis=-1)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """Return the kernel's layout that goes with the data's."""
    if data_layout == "NHWC":
        return "HWOI" if is_depthwise else "HWIO"
    return "OIHW"
