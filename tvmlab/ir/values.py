"""The names that a model file gives to its values, kept in the imported module.

A name is the source of the span of the call that computes the value. Passes keep the span of a call
that they do not replace, and a printed module does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.ir import IRModule, SourceName, Span

__all__ = ["named", "value_name"]

_LINE = 0  # The spans of parsed TVMScript count lines from 1.


def value_name(binding: relax.Binding) -> str | None:
    """Return the model's name of the value that a binding computes, or None."""
    span = getattr(getattr(binding, "value", None), "span", None)
    return str(span.source_name.name) if span is not None and span.line == _LINE else None


def named(mod: IRModule, values: Mapping[str, Any]) -> IRModule:
    """Record the names of `values` in ``main``; each value is a variable, or what one is bound to.

    The last name of a value counts. Values in branches, constants and inputs get no name.
    """
    names = {value: name for name, value in values.items() if isinstance(value, relax.Expr)}
    main = mod["main"]
    blocks = []
    for block in main.body.blocks:
        bindings = []
        for binding in block.bindings:
            name = names.get(binding.var) or names.get(getattr(binding, "value", None))
            bindings.append(_named(binding, name) if name else binding)
        blocks.append(type(block)(bindings))
    body = relax.SeqExpr(blocks, main.body.body)
    relax.expr._update_type(body, main.body.ty)
    mod["main"] = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return mod


def _named(binding: relax.Binding, name: str) -> relax.Binding:
    value, span = getattr(binding, "value", None), Span(SourceName(name), _LINE, _LINE, 0, 0)
    if isinstance(value, relax.Call):
        made: relax.Expr = relax.Call(value.op, value.args, value.attrs, value.ty_args, span)
        relax.expr._update_type(made, value.ty)
    elif isinstance(value, relax.TupleGetItem):
        made = relax.TupleGetItem(value.tuple_value, value.index, span)
    else:
        return binding
    return relax.VarBinding(binding.var, made)
