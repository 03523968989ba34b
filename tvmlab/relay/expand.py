"""Take operators of ours for what they stand for, before anything looks at the graph.

Layout and fusion know Relax's operators. An operator of ours becomes some of those by its
legalization at the latest; by this pass it does so first of all, so that it costs nothing.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .. import dialect
from . import graph

__all__ = ["ExpandRelayOperators", "has_relay_operators"]


def has_relay_operators(mod: ir.IRModule) -> bool:
    """Say whether a module calls any operator of ours that stands for others.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        The module; functions that are not Relax are passed over.

    Returns
    -------
    bool
        Whether `ExpandRelayOperators` would change it.
    """
    found = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            found.append(dialect.expansion(expr.op.name) is not None)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    return any(found)


@tvm.transform.module_pass(opt_level=0, name="ExpandRelayOperators")
class ExpandRelayOperators:
    """The pass: calls of operators that `tvmlab.dialect` registered with an expansion expanded.

    What has no expansion (the quantized operators, so far) stays as it is. An expansion may use
    other operators of ours; they are expanded in turn.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure.

        Raises
        ------
        RelayError
            An expansion needs to know a size that is a symbol here.
        """
        expander = _Expander(mod)
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                expander.builder_.update_func(name, expander.visit_expr(function))
        return expander.builder_.get()


@mutator
class _Expander(PyExprMutator):  # type: ignore[misc]
    """Puts expansions in the places of calls."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visit a call's operands, then expand it."""
        args = [self.visit_expr(arg) for arg in call.args]
        head = call.op if isinstance(call.op, ir.Op) else self.visit_expr(call.op)
        made = relax.Call(head, args, call.attrs, call.ty_args, call.span)
        relax.expr._update_type(made, call.ty)
        return self.builder_.normalize(_expanded(call, made))


def _expanded(_: relax.Expr, expr: relax.Expr) -> relax.Expr:
    """Expand a call over operands that are expanded already, and what it expands to."""
    expr = graph.typed(expr)
    if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
        expand = dialect.expansion(expr.op.name)
        if expand is not None:
            return graph.transform(expand(list(expr.args), dialect.attributes(expr)), _expanded)
    return expr
