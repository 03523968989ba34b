"""Relay's ``relay.qnn.transform``, and ``TempOpAttr``, which changes what its `Legalize` does.

Relay lowered quantized operators with these passes. `tvmlab.compile` lowers them itself, so that
the passes leave them as they are, except where a script replaces the legalization of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax
from tvm.ir.transform import Pass, PassContext, module_pass

from ..ir import dialect, gone, graph, table
from ..ir.module import normal, normalize
from . import op

# Functions of scripts by the operators' Relax names.
_LEGALIZE: dict[str, Callable[..., Any]] = {}


class TempOpAttr:
    """Replace an operator's attribute ``FTVMQnnLegalize`` inside a ``with`` block.

    The attribute is a function of a call's attributes, its operands, and the types of the operands
    and of the result. It returns the replacement, or None to keep the call. Other attributes raise
    `RelayError`, because nothing would read them.
    """

    def __init__(self, op_name: str, attr_key: str, attr_value: Callable[..., Any]) -> None:
        self.name, self.value = op.get(op_name).name, attr_value
        if attr_key != "FTVMQnnLegalize":
            remark = "its methods set_attr and reset_attr, with the attribute FLegalize"
            raise gone.error(f"TempOpAttr({op_name!r}, {attr_key!r}, ...)", "tvm.ir.Op", remark)

    def __enter__(self) -> TempOpAttr:
        self.before = _LEGALIZE.get(self.name)
        _LEGALIZE[self.name] = self.value
        return self

    def __exit__(self, *_: object) -> None:
        del _LEGALIZE[self.name]
        if self.before is not None:
            _LEGALIZE[self.name] = self.before


def legalize(mod: ir.IRModule) -> ir.IRModule:
    """Replace the calls for which a script has a legalization."""

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        is_operator = isinstance(after, relax.Call) and isinstance(after.op, ir.Op)
        replace = _LEGALIZE.get(after.op.name) if is_operator else None
        found = table.written(after) if replace else None
        if replace is None or found is None:
            return after
        row, operands, values = found
        attrs = dialect.Attributes(row, values, after.attrs)
        made = replace(attrs, list(operands), [*(one.ty for one in operands), after.ty])
        return after if made is None else made

    if not _LEGALIZE:
        return mod
    mod = normalize(mod)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            body = graph.transform(graph.inline_bindings(func.body), change)
            made = relax.Function(func.params, body, func.ret_ty, attrs=func.attrs)
            mod = mod.clone()
            mod.update_func(var, normal(made))
    return mod


def Legalize() -> Pass:
    """Call the script's legalizations of quantized operators, which `TempOpAttr` sets."""

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return legalize(mod)

    return module_pass(run, opt_level=1, name="qnn.Legalize")


def CanonicalizeOps() -> Pass:
    """Keep the quantized operators, because `tvmlab.compile` lowers them."""

    def run(mod: ir.IRModule, _: PassContext) -> ir.IRModule:
        return normalize(mod)

    return module_pass(run, opt_level=1, name="qnn.CanonicalizeOps")
