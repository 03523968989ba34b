"""Relay's helpers for tests and its small networks, in code of this project."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...ir import gone
from ...ir.graph import inline_bindings
from .. import transform
from ..expr import as_expr
from ..module import from_expr
from . import init, layers, networks
from .init import create_workload

__all__ = [
    "create_workload",
    "init",
    "layers",
    "mlp",
    "mobilenet",
    "rand",
    "resnet",
    "run_infer_type",
    "run_opt_pass",
]


def _network(name: str, order: str, net: str = "get_net", **defaults: Any) -> Any:
    """Make Relay's module of a network: the network, and ``get_workload`` with its own order."""
    module = sys.modules[f"{__name__}.{name}"] = ModuleType(f"{__name__}.{name}")
    get_net: Callable[..., relax.Function] = getattr(networks, name)
    names = order.split()

    def get_workload(*args: Any, **kwargs: Any) -> tuple[ir.IRModule, dict[str, Any]]:
        """Make the network's module, and values for its parameters."""
        given = dict(zip(names[: len(args)], args, strict=True))
        return create_workload(get_net(**{**defaults, **given, **kwargs}))

    vars(module).update({net: get_net, "get_workload": get_workload, "__doc__": get_net.__doc__})
    return module


mlp = _network("mlp", "batch_size num_classes image_shape dtype")
mobilenet = _network("mobilenet", "batch_size num_classes image_shape dtype layout", "mobile_net")
resnet = _network(
    "resnet", "batch_size num_classes num_layers image_shape layout dtype", num_layers=18
)


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> relax.Expr:
    """Run a pass, or several, on an expression.

    Parameters
    ----------
    expr : tvm.relax.Expr
        A function, or a graph.
    opt_pass : Pass or sequence of Pass
        What to run.
    import_prelude : bool
        Relay's; there is no prelude.

    Returns
    -------
    tvm.relax.Expr
        The function, or the graph that was made of the graph.
    """
    one = (
        opt_pass if isinstance(opt_pass, ir.transform.Pass) else tvm.transform.Sequential(opt_pass)
    )
    expr = as_expr(expr)
    entry = one(from_expr(expr))["main"]
    return entry if isinstance(expr, relax.Function) else inline_bindings(entry.body)


def run_infer_type(expr: Any) -> relax.Expr:
    """Infer the types in an expression."""
    return run_opt_pass(expr, transform.InferType())


def rand(dtype: str, *shape: int) -> Any:
    """Make a tensor of random numbers from 0 to 1."""
    return tvm.runtime.tensor(np.random.default_rng().random(shape).astype(dtype))


def __getattr__(name: str) -> Any:
    raise gone.missing("testing", name, globals())
