"""Expand tvmlab's own operators into Relax's.

This pass runs first, because the passes for layout and fusion know Relax's operators only.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from . import dialect, graph

__all__ = ["ExpandRelayOperators"]


@tvm.transform.module_pass(opt_level=0, name="ExpandRelayOperators")
class ExpandRelayOperators:
    """Expand the calls of operators that `tvmlab.ir.dialect` registered with an expansion.

    Operators without one (the quantized ones) stay. Calls in an expansion are expanded too.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        expander = _Expander(mod)
        for name, function in mod.functions_items():
            if isinstance(function, relax.Function):
                expander.builder_.update_func(name, expander.visit_expr(function))
        return expander.builder_.get() if expander.found else mod


@mutator
class _Expander(PyExprMutator):  # type: ignore[misc]
    found = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        args = [self.visit_expr(arg) for arg in call.args]
        head = call.op if isinstance(call.op, ir.Op) else self.visit_expr(call.op)
        made = relax.Call(head, args, call.attrs, call.ty_args, call.span)
        relax.expr._update_type(made, call.ty)
        return self.builder_.normalize(self.expanded(call, made))

    def expanded(self, _: relax.Expr, expr: relax.Expr) -> relax.Expr:
        """Expand a call whose operands are expanded already, and calls in its expansion."""
        expr = graph.typed(expr)
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            new = dialect.expanded(expr)
            if new is not None:
                self.found = True
                return graph.transform(new, self.expanded)
        return expr
