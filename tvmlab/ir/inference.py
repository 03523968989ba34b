"""Types of calls that were made without: each is inferred from its operands."""

from __future__ import annotations

from tvm import ir, relax

from ..errors import RelayError
from . import graph
from .refusals import named, reason

__all__ = ["infer", "result_type", "typed"]


def infer(expr: relax.Expr) -> relax.Expr:
    """Infer the types of calls that Python's operators (``x + y``) made without, in place.

    A variable without a type ends it: nothing above it can be inferred.
    """
    seen: set[int] = set()
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            _settle(node)
        elif isinstance(node, ir.Op) or graph.known(node) or graph.key(node) in seen:
            continue
        elif isinstance(node, relax.Var):
            break
        else:
            seen.add(graph.key(node))
            stack.append((node, True))
            stack.extend((child, False) for child in graph.children(node))
    return expr


def _settle(node: relax.Expr) -> None:
    """Infer one node's type from its children's."""
    if isinstance(node, relax.Call):
        typed(node)
    elif isinstance(node, relax.Tuple):
        if all(not isinstance(field, ir.Op) and graph.known(field) for field in node.fields):
            relax.expr._update_type(node, relax.TupleType([field.ty for field in node.fields]))
    elif isinstance(node, relax.TupleGetItem) and isinstance(node.tuple_value.ty, ir.TupleType):
        relax.expr._update_type(node, node.tuple_value.ty.fields[node.index])


def typed(expr: relax.Expr) -> relax.Expr:
    """Infer a type as `graph.typed` does; what Relax says against it names the call."""
    try:
        return graph.typed(expr)
    except RelayError:
        raise
    except Exception as error:  # upstream's inference raises many classes
        raise RelayError(
            f"the operands do not fit the operator: {reason(error)}",
            where=f"{named(expr.op)} of {', '.join(str(arg.ty) for arg in expr.args)}",
            fix="look at the operands' shapes and dtypes",
        ) from error


def result_type(body: relax.Expr) -> ir.Type | None:
    """Give the type to declare as a function's result: None where Relax finds it."""
    if isinstance(body, relax.SeqExpr) and not graph.known(body):
        return body.body.ty if graph.known(body.body) else relax.AnyType()
    return None if graph.known(body) else relax.AnyType()
