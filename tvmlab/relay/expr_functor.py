"""Relay's visitors and mutators, on graphs.

The visitors first turn a function's bindings into a graph, so that ``visit_call`` finds the
producer of an argument in ``call.args``, and ``visit_let`` is never called. Visits recurse, as
Relay's do: an override of ``visit_call`` decides whether, and when, the arguments are visited.
"""

from __future__ import annotations

import sys
from typing import Any

from tvm import ir, relax

from ..errors import RelayError
from ..ir.graph import inline_bindings, key, same_nodes
from .analysis import parts
from .expr import Call, Function, If, Tuple, TupleGetItem, as_expr

_METHODS: tuple[tuple[Any, str], ...] = (
    (relax.Function, "visit_function"),
    (relax.Call, "visit_call"),
    (relax.Var, "visit_var"),
    (ir.GlobalVar, "visit_global_var"),
    (relax.If, "visit_if"),
    (relax.Tuple, "visit_tuple"),
    (relax.TupleGetItem, "visit_tuple_getitem"),
    (ir.GenericConst, "visit_constant"),
    (ir.Op, "visit_op"),
)
# Relay has no other expressions: a Relax shape is an attribute in Relay.
_KINDS = (relax.SeqExpr, *(kind for kind, _ in _METHODS))
# As many Python frames as Relay allowed; frames are allocated on the heap.
_DEPTH = 100_000


class ExprFunctor:
    """Base class: dispatch by the class of a node, each node visited once."""

    def __init__(self) -> None:
        self.memo_map: dict[int, tuple[relax.Expr, Any]] = {}

    def visit(self, expr: Any) -> Any:
        """Call the method for an expression's class, such as ``visit_call``.

        Raises `RelayError` for a class that Relay does not have.
        """
        expr = as_expr(expr)
        if isinstance(expr, relax.SeqExpr):
            expr = inline_bindings(expr)
        if key(expr) not in self.memo_map:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(limit, _DEPTH))
            try:
                # Keep the node alive, so that its address is not reused.
                self.memo_map[key(expr)] = expr, self._dispatch(expr)
            finally:
                sys.setrecursionlimit(limit)
        return self.memo_map[key(expr)][1]

    def _dispatch(self, expr: relax.Expr) -> Any:
        for kind, name in _METHODS:
            if isinstance(expr, kind):
                return getattr(self, name)(expr)
        raise RelayError(
            f"Relay has no expression of the kind {type(expr).__name__}",
            where=str(expr),
            fix="visit it with tvm.relax.PyExprVisitor",
        )


class ExprVisitor(ExprFunctor):
    """Visitor of each node's parts: a call's operator and arguments, a function's parameters."""

    def _visit_parts(self, node: relax.Expr) -> None:
        for part in parts(node):
            if isinstance(part, _KINDS):
                self.visit(part)

    visit_function = visit_call = visit_if = visit_tuple = visit_tuple_getitem = _visit_parts
    visit_var = visit_global_var = visit_op = visit_constant = _visit_parts


class ExprMutator(ExprFunctor):
    """Mutator that rebuilds a graph from the results of visiting its parts.

    A call, tuple or tuple field whose parts do not change remains the same object.
    """

    def visit_function(self, fn: relax.Function) -> relax.Expr:
        """Rebuild the function; the type of its result is inferred again."""
        params = [self.visit(param) for param in fn.params]
        return Function(params, self.visit(fn.body), None, None, fn.attrs)

    def _visit_parts(self, node: relax.Expr) -> relax.Expr:
        old = parts(node)
        new = [as_expr(self.visit(part)) if isinstance(part, _KINDS) else part for part in old]
        if same_nodes(old, new):
            return node
        if isinstance(node, relax.Call):
            return Call(new[0], new[1:], node.attrs, node.ty_args)
        if isinstance(node, relax.TupleGetItem):
            return TupleGetItem(new[0], node.index)
        return If(*new) if isinstance(node, relax.If) else Tuple(new)

    visit_call = visit_if = visit_tuple = visit_tuple_getitem = _visit_parts
    visit_var = visit_global_var = visit_op = visit_constant = _visit_parts
