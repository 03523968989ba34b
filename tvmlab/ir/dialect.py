"""Operators of ours in Relax, through the doors that TVM leaves open.

A new operator needs a name, its operands, how types follow from types, and what it stands for. Its
attributes are a plain dictionary (`ir.DictAttrs`), so it prints, matches and saves like any other.
`tvmlab.ir.script` gives it the name by which TVMScript reads what it printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from .. import errors
from . import script

Infer = Callable[[Sequence[ir.Type], dict[str, Any]], ir.Type]
Expand = Callable[[Sequence[relax.Expr], dict[str, Any]], relax.Expr]


def register(
    name: str, operands: Sequence[str], infer: Infer, expand: Expand | None = None
) -> ir.Op:
    """Register a pure Relax operator, once.

    Parameters
    ----------
    name : str
        The whole name, such as ``"relax.qnn.requantize"``.
    operands : sequence of str
        The names of its operands, in order.
    infer : callable
        ``infer(types, attributes)`` gives the type of the result from the operands' types, or
        raises a `tvmlab.errors` class that names the operand at fault. Types may be unknown in
        part (no shape, no dtype): then so is the result's.
    expand : callable, optional
        ``expand(operands, attributes)`` gives an expression of other Relax operators (nested calls
        are welcome) that computes the same. It also serves as the operator's legalization.

    Returns
    -------
    tvm.ir.Op
        The operator.

    Notes
    -----
    The sources are TVM's own: `src/relax/op/op_common.h` for what an operator has to carry.
    """
    if name in _INFERENCES:
        return ir.Op.get(name)
    ir._ffi_api.RegisterOp(name, f"{name}, registered by tvmlab")
    op = ir.Op.get(name)
    op.set_num_inputs(len(operands))
    for operand in operands:
        op.add_argument(operand, "Expr", "")
    op.set_attrs_type_key("ir.DictAttrs")
    op.set_attr("FPurity", True)

    def infer_type(call: relax.Call, _: relax.BlockBuilder) -> ir.Type:
        return infer([arg.ty for arg in call.args], attributes(call))

    op.set_attr("FInferType", infer_type)
    if expand is not None:

        def legalize(_: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
            return expand(list(call.args), attributes(call))

        op.set_attr("FLegalize", legalize)
        _EXPANSIONS[name] = expand
    _INFERENCES[name] = infer
    return op


def call(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> relax.Call:
    """Make a call of an operator that `register` made, without its type."""
    return relax.Call(
        ir.Op.get(name), list(operands), tvm.ir.make_node("ir.DictAttrs", **attributes)
    )


def typed_call(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> relax.Call:
    """Make a call of an operator that `register` made, with its type.

    Where an operand has no type at all yet, the call has none either.
    """
    made = call(name, operands, attributes)
    types = [operand.ty for operand in operands]
    if all(ty is not None and type(ty) is not ir.Type for ty in types):
        relax.expr._update_type(made, _INFERENCES[name](types, attributes))
    return made


def attributes(call: relax.Call) -> dict[str, Any]:
    """Return a call's attributes as plain Python values: lists, str, int, float, bool, None."""
    return {name: plain(value) for name, value in call.attrs.items()}


def plain(value: Any) -> Any:
    """Turn what TVM keeps in an attribute into plain Python."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [plain(item) for item in value]
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return value.value
    return value


def expansion(name: str) -> Expand | None:
    """Return the expansion of an operator of ours, or None where it has none."""
    return _EXPANSIONS.get(name)


def any_expansion() -> bool:
    """Return whether any operator of ours has an expansion."""
    return bool(_EXPANSIONS)


def _from_words(kind: type[errors.TvmlabError]) -> type:
    """Make a type whose call makes an error again from its words: all that crosses TVM."""

    def again(cls: type, words: str) -> errors.TvmlabError:
        words, _, fix = words.partition("\n  to do: ")
        what, _, where = words.partition("\n  where: ")
        return kind(what, where=where or None, fix=fix or None)

    return type(kind.__name__, (), {"__new__": again})


# Those of the table of Relay's operators, which is large: it is imported when a script names one.
script.namespace("qnn", "tvmlab.qnn.rows")
script.namespace("relay", "tvmlab.ir.operators")

_INFERENCES: dict[str, Infer] = {}
_EXPANSIONS: dict[str, Expand] = {}

for _name in errors.__all__:
    # Once for the way into TVM, which turns a class into a name, and once for the way out.
    tvm_ffi.register_error(f"tvmlab.{_name}", getattr(errors, _name))
    tvm_ffi.register_error(f"tvmlab.{_name}", _from_words(getattr(errors, _name)))
