"""Relay's helpers for tests and its small networks, in code of this project."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...ir import gone
from ...ir.flatten import flat
from .. import transform
from ..expr import as_expr
from ..module import from_expr
from . import inception_v3, init, layers, mlp, mobilenet, resnet, squeezenet, vgg
from .init import create_workload

__all__ = [
    "create_workload",
    "inception_v3",
    "init",
    "layers",
    "mlp",
    "mobilenet",
    "rand",
    "resnet",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "vgg",
]


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
    return entry if isinstance(expr, relax.Function) else flat(entry.body)


def run_infer_type(expr: Any) -> relax.Expr:
    """Infer the types in an expression."""
    return run_opt_pass(expr, transform.InferType())


def rand(dtype: str, *shape: int) -> Any:
    """Make a tensor of random numbers from 0 to 1."""
    return tvm.runtime.tensor(np.random.default_rng().random(shape).astype(dtype))


def __getattr__(name: str) -> Any:
    raise gone.missing("testing", name, globals())
