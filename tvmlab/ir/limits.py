"""Limits of a value, which upstream imports as loops, back as operators.

No pass on operators sees what a TIR function does: not which layout it has, not whether it has an
integer form. A function counts as an operator's if upstream makes the very same one of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from .graph import is_call

__all__ = ["RaiseLimits"]

_LIMITS = ("maximum", "minimum")


@tvm.transform.module_pass(opt_level=0)
class RaiseLimits:
    """Turn calls of TIR that limits a tensor by a scalar back into operators.

    Upstream's ONNX frontend imports Clip as two TIR functions, each after a choice that handles a
    bound that is not a number. This pass makes them ``clip`` where both bounds are constants, else
    ``maximum`` and ``minimum``. Functions that nothing calls any more are removed.
    """

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        if not any(
            _name(var) in _LIMITS and isinstance(func, tvm.tirx.PrimFunc)
            for var, func in mod.functions_items()
        ):
            return mod
        for var, func in list(mod.functions_items()):
            if isinstance(func, relax.Function):
                mutator = _RaiseLimits(mod)
                new = mutator.visit_expr(func)
                if not tvm_ffi.structural_equal(new, func):
                    mutator.builder_.update_func(var, new)
                    mod = mutator.builder_.get()
        return relax.transform.DeadCodeElimination()(mod)


@relax.expr_functor.mutator
class _RaiseLimits(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.ir.IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.call_tir") or not isinstance(call.args[1], relax.Tuple):
            return call
        function, values = call.args[0], list(call.args[1].fields)
        name = _name(function)
        if name not in _LIMITS or len(values) != 2 or values[1].ty.ndim != 0:
            return call
        op = getattr(relax.op, name)
        if not tvm_ffi.structural_equal(self.mod[function], _as_tir(op, values, name)):
            return call
        value, bound = values[0], self.bound(values[1])
        below: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if (
            name == "minimum"
            and is_call(below, "relax.maximum")
            and isinstance(bound, ir.GenericConst)
            and isinstance(below.args[1], ir.GenericConst)
        ):
            low, high = below.args[1].value.numpy().item(), bound.value.numpy().item()
            return relax.op.clip(below.args[0], low, high)
        return op(value, bound)

    def bound(self, value: relax.Expr) -> relax.Expr:
        """See through the choice that replaces a bound that is not a number."""
        choice: Any = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if not is_call(choice, "relax.where") or not isinstance(choice.args[2], ir.GenericConst):
            return value
        test, constant = self.lookup_binding(choice.args[0]), choice.args[2]
        if not is_call(test, "relax.isnan"):
            return value
        same = tvm_ffi.structural_equal(test.args[0], constant)
        return constant if same and not np.isnan(constant.value.numpy()) else value


def _name(function: ir.GlobalVar) -> str:
    """Return a function's name without the number that makes it unique."""
    return str(function.name_hint.rstrip("0123456789_"))


def _as_tir(op: Any, values: list[relax.Expr], name: str) -> Any:
    """Return the TIR function that upstream makes of an operator, None if its name differs."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", value.ty) for i, value in enumerate(values)]
    with builder.function("main", parameters):
        builder.emit_func_output(builder.emit(op(*parameters)))
    mod = relax.transform.LegalizeOps()(builder.get())
    return mod[name] if name in {v.name_hint for v in mod.get_global_vars()} else None
