"""Limits of a value, which upstream imports as loops, back as operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from .raising import as_tir, calls, plain, raised

__all__ = ["RaiseLimits"]

_LIMITS = ("maximum", "minimum")


@tvm.transform.module_pass(opt_level=0)
class RaiseLimits:
    """Turn calls of TIR that limits a tensor by a scalar back into operators.

    Upstream's ONNX frontend imports Clip as two TIR functions, which no pass on operators sees,
    with a choice before each of what a bound that is not a number means. Here that is ``clip``
    where both bounds are constants, else ``maximum`` and ``minimum``. A function is taken for what
    it is if upstream makes the very same one of the operator.
    """

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return raised(mod, _LIMITS, _RaiseLimits)


@relax.expr_functor.mutator
class _RaiseLimits(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.ir.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.call_tir" or not isinstance(
            call.args[1], relax.Tuple
        ):
            return call
        function, values = call.args[0], list(call.args[1].fields)
        name = plain(function)
        if name not in _LIMITS or len(values) != 2 or values[1].ty.ndim != 0:
            return call
        op = getattr(relax.op, name)
        if not tvm_ffi.structural_equal(self.mod[function], as_tir(op, values, name)):
            return call
        value, bound = values[0], self.bound(values[1])
        below: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if (
            name == "minimum"
            and calls(below, "maximum")
            and isinstance(bound, ir.GenericConst)
            and isinstance(below.args[1], ir.GenericConst)
        ):
            low, high = below.args[1].value.numpy().item(), bound.value.numpy().item()
            return relax.op.clip(below.args[0], low, high)
        return op(value, bound)

    def bound(self, value: relax.Expr) -> relax.Expr:
        """See through the choice that replaces a bound that is not a number."""
        choice: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if not calls(choice, "where") or not isinstance(choice.args[2], ir.GenericConst):
            return value
        test, constant = self.lookup_binding(choice.args[0]), choice.args[2]
        if not calls(test, "isnan") or not tvm_ffi.structural_equal(test.args[0], constant):
            return value
        return value if np.isnan(constant.value.numpy()) else constant
