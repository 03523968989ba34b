"""Expand tvmlab's own operators into Relax's.

This pass runs first, because the passes for layout and fusion know Relax's operators only.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from . import dialect, graph

__all__ = ["ExpandRelayOperators", "replace_calls"]

Replacement = Callable[[relax.Call], relax.Expr | None]


@tvm.transform.module_pass(opt_level=0, name="ExpandRelayOperators")
class ExpandRelayOperators:
    """Expand the calls of operators that `tvmlab.ir.dialect` registered with an expansion.

    Operators without an expansion (the quantized ones) stay as they are. An expansion can use other
    registered operators, which are expanded too.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return replace_calls(mod, _expansion)


def replace_calls(mod: ir.IRModule, replacement: Replacement) -> ir.IRModule:
    """Replace calls of operators by what `replacement` returns unless it is None.

    Calls in a replacement are replaced too. A module without such calls is returned as it is.
    """
    replacer = _Replacer(mod, replacement)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            replacer.builder_.update_func(name, replacer.visit_expr(function))
    return replacer.builder_.get() if replacer.found else mod


@mutator
class _Replacer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: ir.IRModule, replacement: Replacement) -> None:
        super().__init__(mod)
        self.replacement = replacement
        self.found = False

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
                self.found = True
                return graph.transform(new, self.replaced)
        return expr


def _expansion(call: relax.Call) -> relax.Expr | None:
    expand = dialect.expansion(call.op.name)
    return None if expand is None else expand(list(call.args), dialect.attributes(call))
