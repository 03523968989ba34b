"""Types of calls that were made without: each is inferred from its operands."""

from __future__ import annotations

from tvm import ir, relax

from ..errors import RelayError
from . import graph
from .graph import result_type
from .refusals import explain, named

__all__ = ["infer_type", "result_type"]


def infer_type(expr: relax.Expr) -> relax.Expr:
    """Infer the types of calls that Python's operators (``x + y``) made without, in place.

    A variable without a type ends the walk: nothing above the variable can be inferred.
    """
    seen: set[int] = set()
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            _infer_node(node)
        elif isinstance(node, ir.Op) or graph.has_type(node) or graph.key(node) in seen:
            continue
        elif isinstance(node, relax.Var):
            break
        else:
            seen.add(graph.key(node))
            stack.append((node, True))
            stack.extend((child, False) for child in graph.children(node))
    return expr


def _infer_node(expr: relax.Expr) -> None:
    """Infer the type of one node as `graph.typed` does; an error of Relax's names the call."""
    try:
        graph.typed(expr)
    except RelayError:
        raise
    except Exception as error:  # upstream's inference raises many classes
        raise RelayError(
            f"the operands do not fit the operator: {explain(error)}",
            where=f"{named(expr.op)} of {', '.join(str(arg.ty) for arg in expr.args)}",
            fix="look at the operands' shapes and dtypes",
        ) from error
