"""Take operators of ours for what they stand for, before anything looks at the graph.

Layout and fusion know Relax's operators. An operator of ours becomes some of those by its
legalization at the latest; by this pass it does so first of all, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from . import dialect, graph

__all__ = ["ExpandRelayOperators", "has_relay_operators", "replace_calls"]


def has_relay_operators(mod: ir.IRModule) -> bool:
    """Return whether a module calls any operator of ours that stands for others."""
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
    """The pass: calls of operators that `tvmlab.ir.dialect` registered with an expansion expanded.

    What has no expansion (the quantized operators, so far) stays as it is. An expansion may use
    other operators of ours; they are expanded in turn.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return replace_calls(mod, _expansion) if has_relay_operators(mod) else mod


def replace_calls(
    mod: ir.IRModule, replacement: Callable[[relax.Call], relax.Expr | None]
) -> ir.IRModule:
    """Replace calls by what `replacement` returns unless it is None, and again in the results."""
    replacer = _Replacer(mod, replacement)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            replacer.builder_.update_func(name, replacer.visit_expr(function))
    return replacer.builder_.get()


@mutator
class _Replacer(PyExprMutator):  # type: ignore[misc]
    """Puts expressions in the places of calls."""

    def __init__(
        self, mod: ir.IRModule, replacement: Callable[[relax.Call], relax.Expr | None]
    ) -> None:
        super().__init__(mod)
        self.replacement = replacement

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visit a call's operands, then replace it."""
        args = [self.visit_expr(arg) for arg in call.args]
        head = call.op if isinstance(call.op, ir.Op) else self.visit_expr(call.op)
        made = relax.Call(head, args, call.attrs, call.ty_args, call.span)
        relax.expr._update_type(made, call.ty)
        return self.builder_.normalize(self.replaced(call, made))

    def replaced(self, _: relax.Expr, expr: relax.Expr) -> relax.Expr:
        """Replace a call over operands that are replaced already, and in what replaces it."""
        expr = graph.typed(expr)
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            new = self.replacement(expr)
            if new is not None:
                return graph.transform(new, self.replaced)
        return expr


def _expansion(call: relax.Call) -> relax.Expr | None:
    expand = dialect.expansion(call.op.name)
    return None if expand is None else expand(list(call.args), dialect.attributes(call))
