"""Relay's visitors and mutators, on graphs.

A function's bindings are turned into a graph on the way, so that ``visit_call`` finds the producer
of an argument in ``call.args``, and ``visit_let`` is never asked for. They recurse, as Relay's do:
who overrides ``visit_call`` says whether, and when, the arguments are visited.
"""

from __future__ import annotations

import sys
from typing import Any

from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph
from ..ir.flatten import flat
from .expr import Call, Function, If, Tuple, TupleGetItem, as_expr

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]

# As many of Python's frames as Relay allowed; they lie on the heap.
_DEPTH = 100_000


class ExprFunctor:
    """The base: dispatch by kind of node, each node visited once."""

    def __init__(self) -> None:
        self.memo_map: dict[int, tuple[relax.Expr, Any]] = {}

    def visit(self, expr: Any) -> Any:
        """Visit an expression.

        Raises
        ------
        RelayError
            It is of a kind that Relay has not.
        """
        expr = as_expr(expr)
        if isinstance(expr, relax.SeqExpr):
            expr = flat(expr)
        found = self.memo_map.get(graph.key(expr))
        if found is not None:
            return found[1]
        limit = sys.getrecursionlimit()
        if limit < _DEPTH:
            sys.setrecursionlimit(_DEPTH)
        try:
            result = self._dispatch(expr)
        finally:
            if limit < _DEPTH:
                sys.setrecursionlimit(limit)
        self.memo_map[graph.key(expr)] = expr, result  # the node is kept, and so is its address
        return result

    def _dispatch(self, expr: relax.Expr) -> Any:
        for kind, method in _METHODS:
            if isinstance(expr, kind):
                return getattr(self, method)(expr)
        raise RelayError(
            f"Relay has no expression of the kind {type(expr).__name__}",
            where=str(expr),
            fix="visit it with tvm.relax.PyExprVisitor",
        )

    def visit_function(self, _: relax.Function) -> Any:
        """Visit a function."""
        raise NotImplementedError

    def visit_call(self, _: relax.Call) -> Any:
        """Visit a call."""
        raise NotImplementedError

    def visit_var(self, _: relax.Var) -> Any:
        """Visit a variable."""
        raise NotImplementedError

    def visit_if(self, _: relax.If) -> Any:
        """Visit a branch."""
        raise NotImplementedError

    def visit_tuple(self, _: relax.Tuple) -> Any:
        """Visit a tuple."""
        raise NotImplementedError

    def visit_tuple_getitem(self, _: relax.TupleGetItem) -> Any:
        """Visit a projection."""
        raise NotImplementedError

    def visit_global_var(self, _: ir.GlobalVar) -> Any:
        """Visit the name of a function of the module."""
        raise NotImplementedError

    def visit_op(self, _: ir.Op) -> Any:
        """Visit an operator."""
        raise NotImplementedError

    def visit_constant(self, _: ir.GenericConst) -> Any:
        """Visit a constant."""
        raise NotImplementedError


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


def _in_relay(expr: relax.Expr) -> bool:
    """Say whether Relay has such an expression; what is a shape in Relax is an attribute there."""
    return isinstance(expr, (relax.SeqExpr, *(kind for kind, _ in _METHODS)))


class ExprVisitor(ExprFunctor):
    """Goes through a graph."""

    def visit_function(self, fn: relax.Function) -> None:
        """Visit the parameters and the body."""
        for param in fn.params:
            self.visit(param)
        self.visit(fn.body)

    def visit_call(self, call: relax.Call) -> None:
        """Visit the operator and the arguments."""
        self.visit(call.op)
        for arg in call.args:
            if _in_relay(arg):
                self.visit(arg)

    def visit_var(self, var: relax.Var) -> None:
        """Visit a variable: nothing is below it."""

    def visit_if(self, branch: relax.If) -> None:
        """Visit the condition and both branches."""
        self.visit(branch.cond)
        self.visit(branch.true_branch)
        self.visit(branch.false_branch)

    def visit_tuple(self, tup: relax.Tuple) -> None:
        """Visit the fields."""
        for field in tup.fields:
            self.visit(field)

    def visit_tuple_getitem(self, item: relax.TupleGetItem) -> None:
        """Visit the tuple."""
        self.visit(item.tuple_value)

    def visit_global_var(self, gvar: ir.GlobalVar) -> None:
        """Visit a name: nothing is below it."""

    def visit_op(self, op: ir.Op) -> None:
        """Visit an operator: nothing is below it."""

    def visit_constant(self, const: ir.GenericConst) -> None:
        """Visit a constant: nothing is below it."""


class ExprMutator(ExprFunctor):
    """Goes through a graph and makes it again, from what the visits of its parts gave."""

    def visit_function(self, fn: relax.Function) -> relax.Expr:
        """Make the function again; its result's type is found anew."""
        params = [self.visit(param) for param in fn.params]
        return Function(params, self.visit(fn.body), None, None, fn.attrs)

    def visit_call(self, call: relax.Call) -> relax.Expr:
        """Make the call again, the same object where nothing is new."""
        op = self.visit(call.op)
        args = [as_expr(self.visit(arg)) if _in_relay(arg) else arg for arg in call.args]
        same = op.same_as(call.op) and all(
            new.same_as(old) for new, old in zip(args, call.args, strict=True)
        )
        return call if same else Call(op, args, call.attrs, call.ty_args)

    def visit_var(self, var: relax.Var) -> relax.Expr:
        """Keep a variable."""
        return var

    def visit_if(self, branch: relax.If) -> relax.Expr:
        """Make the branch again."""
        return If(
            self.visit(branch.cond),
            self.visit(branch.true_branch),
            self.visit(branch.false_branch),
        )

    def visit_tuple(self, tup: relax.Tuple) -> relax.Expr:
        """Make the tuple again."""
        return Tuple([self.visit(field) for field in tup.fields])

    def visit_tuple_getitem(self, item: relax.TupleGetItem) -> relax.Expr:
        """Make the projection again, the same object where nothing is new."""
        value = as_expr(self.visit(item.tuple_value))
        return item if value.same_as(item.tuple_value) else TupleGetItem(value, item.index)

    def visit_global_var(self, gvar: ir.GlobalVar) -> relax.Expr:
        """Keep a name."""
        return gvar

    def visit_op(self, op: ir.Op) -> relax.Expr:
        """Keep an operator."""
        return op

    def visit_constant(self, const: ir.GenericConst) -> relax.Expr:
        """Keep a constant."""
        return const
