"""Relay's analyses, on graphs.

The source of names and orders is Relay's ``python/tvm/relay/analysis/analysis.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import ir, relax

from ..errors import RelayError
from ..ir import gone, table
from .module import from_expr
from .variables import all_vars, bound_vars, free_vars, nodes, post_order_visit

__path__: list[str] = []  # see gone.ImportFinder
__all__ = [
    "all_vars",
    "bound_vars",
    "free_vars",
    "list_op_freqs",
    "post_order_visit",
    "well_formed",
]


def well_formed(expr: Any) -> bool:
    """Return whether a function or module is well-formed Relax."""
    try:
        relax.analysis.well_formed(expr if isinstance(expr, ir.IRModule) else from_expr(expr))
    except (RelayError, ValueError):  # TVM's own says what is wrong
        return False
    return True


def list_op_freqs(mod: ir.IRModule) -> dict[str, int]:
    """Count the calls of each operator in a module's functions, by Relay's names."""
    found: Counter[str] = Counter()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            for node in nodes(func):
                if isinstance(node, relax.Call) and isinstance(node.op, ir.Op):
                    row = table.written(node)
                    found[row[0].name if row else node.op.name] += 1
    return dict(found)


def __getattr__(name: str) -> Any:
    raise gone.missing("analysis", name, globals())
