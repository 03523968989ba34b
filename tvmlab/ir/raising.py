"""Calls of TIR that upstream's ONNX frontend imports an operator as, back to the operator.

No pass on operators sees what a TIR function does: not which layout it has, not whether it has an
integer form. A function is taken for an operator's if upstream makes the very same one of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

__all__ = ["as_tir", "calls", "plain", "raised"]


def raised(
    mod: tvm.ir.IRModule, names: Sequence[str], mutator: Callable[[tvm.ir.IRModule], Any]
) -> tvm.ir.IRModule:
    """Rewrite the Relax functions of a module that has TIR functions of some names.

    `names` are without the numbers that upstream adds; ``mutator(mod)`` makes a
    `tvm.relax.PyExprMutator`. Functions that nothing calls any more go.
    """
    if not any(
        plain(var) in names and isinstance(func, tvm.tirx.PrimFunc)
        for var, func in mod.functions_items()
    ):
        return mod
    for var, func in list(mod.functions_items()):
        if isinstance(func, relax.Function):
            made = mutator(mod)
            new = made.visit_expr(func)
            if not tvm_ffi.structural_equal(new, func):
                made.builder_.update_func(var, new)
                mod = made.builder_.get()
    return relax.transform.DeadCodeElimination()(mod)


def plain(function: tvm.ir.GlobalVar) -> str:
    """Give a function's name without the number that makes it one of its own."""
    return str(function.name_hint.rstrip("0123456789_"))


def calls(value: Any, name: str) -> bool:
    """Say whether an expression calls an operator of Relax."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == f"relax.{name}"


def as_tir(op: Callable[..., relax.Expr], values: Sequence[Any], name: str) -> Any:
    """Give the TIR function that upstream makes of an operator, None if it has another name."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", value.ty) for i, value in enumerate(values)]
    with builder.function("main", parameters):
        builder.emit_func_output(builder.emit(op(*parameters)))
    mod = relax.transform.LegalizeOps()(builder.get())
    return mod[name] if name in {v.name_hint for v in mod.get_global_vars()} else None
