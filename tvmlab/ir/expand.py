"""Expand operators of ours before anything looks at the graph.

Layout and fusion know Relax's operators. Legalization would expand an operator of ours too late for
them, so this pass runs first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from . import dialect, graph

__all__ = ["ExpandRelayOperators", "replace_calls"]

Replacement = Callable[[relax.Call], relax.Expr | None]


@tvm.transform.module_pass(opt_level=0, name="ExpandRelayOperators")
class ExpandRelayOperators:
    """The pass: calls of operators that `tvmlab.ir.dialect` registered with an expansion expanded.

    Operators without an expansion (the quantized ones) stay as they are. An expansion can use other
    operators of ours, which are expanded too.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return replace_calls(mod, _expansion)


def replace_calls(mod: ir.IRModule, replacement: Replacement) -> ir.IRModule:
    """Replace calls of operators by what `replacement` returns unless it is None.

    Calls in a replacement are replaced too. A module without such calls is returned as it is.
    """
    functions = [item for item in mod.functions_items() if isinstance(item[1], relax.Function)]
    found = False

    def look(expr: Any) -> None:
        nonlocal found
        if not found and isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            found = replacement(expr) is not None

    for _, function in functions:
        relax.analysis.post_order_visit(function, look)
    if not found:
        return mod
    replacer = _Replacer(mod, replacement)
    for name, function in functions:
        replacer.builder_.update_func(name, replacer.visit_expr(function))
    return replacer.builder_.get()


@mutator
class _Replacer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: ir.IRModule, replacement: Replacement) -> None:
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
        """Replace a call whose operands are replaced already, and calls in its replacement."""
        expr = graph.typed(expr)
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            new = self.replacement(expr)
            if new is not None:
                return graph.transform(new, self.replaced)
        return expr


def _expansion(call: relax.Call) -> relax.Expr | None:
    expand = dialect.expansion(call.op.name)
    return None if expand is None else expand(list(call.args), dialect.attributes(call))
