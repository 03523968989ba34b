"""Operators of ours in Relax, through the ways that TVM leaves open.

A new operator needs a name, its operands, how types follow from types, and what it stands for. Its
attributes are a plain dictionary (`ir.DictAttrs`), so it prints, matches and saves like any other.

TVMScript reads ``R.qnn.conv2d(...)`` as TVM prints it: its reader looks for ``R.NAME`` in the
module `tvm.relax.script.parser`, where `name_in_script` adds namespaces beside TVM's operators.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import tvm.relax.script
import tvm_ffi
from tvm import ir, relax

from .. import errors

Infer = Callable[[Sequence[ir.Type], dict[str, Any]], ir.Type]
Expand = Callable[[Sequence[relax.Expr], dict[str, Any]], relax.Expr]


def register(
    name: str, operands: Sequence[str], infer: Infer, expand: Expand | None = None
) -> ir.Op:
    """Register a pure Relax operator, once.

    Parameters
    ----------
    name : str
        The full name, such as ``"relax.qnn.requantize"``.
    operands : sequence of str
        The names of its operands, in order.
    infer : callable
        ``infer(types, attributes)`` returns the type of the result from the operands' types, or
        raises a `tvmlab.errors` class that names the operand at fault. Types can be unknown in
        part (no shape, no dtype), and then so is the result's.
    expand : callable, optional
        ``expand(operands, attributes)`` returns an expression of other Relax operators that
        computes the same. It also serves as the operator's legalization.

    Notes
    -----
    `src/relax/op/op_common.h` of TVM says what an operator has to carry.
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
    """Make a call of an operator of ours, without its type."""
    return relax.Call(
        ir.Op.get(name), list(operands), tvm.ir.make_node("ir.DictAttrs", **attributes)
    )


def typed_call(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> relax.Call:
    """Make a call of an operator of ours, with its type if all operands have one."""
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


def _from_words(kind: type[errors.TvmlabError]) -> type:
    """Make a type whose call makes an error again from its words: all that crosses TVM."""

    def again(cls: type, words: str) -> errors.TvmlabError:
        words, _, fix = words.partition("\n  to do: ")
        what, _, where = words.partition("\n  where: ")
        return kind(what, where=where or None, fix=fix or None)

    return type(kind.__name__, (), {"__new__": again})


class Attributes:
    """The attributes of a call as Relay had them; TVM gets the attributes of the call itself.

    The `row` is that of the operator in `tvmlab.ir.table`.
    """

    def __init__(self, row: Any, values: dict[str, Any], today: ir.Attrs | None) -> None:
        self.row, self.values, self.today = row, values, today

    def __getattr__(self, name: str) -> Any:
        if name in ("row", "values", "today") or name not in self.values:
            raise AttributeError(f"{self.row.name} has no attribute {name!r}")
        return self.values[name]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def keys(self) -> list[str]:
        """List the names."""
        return list(self.values)

    def get_int(self, name: str) -> int:
        """Return an integer."""
        return int(self.values[name])

    def get_str(self, name: str) -> str:
        """Return a string."""
        return str(self.values[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        """Return integers."""
        return tuple(int(size) for size in self.values[name])

    def __tvm_ffi_object__(self) -> Any:
        """Return the call's own attributes where TVM takes some."""
        return self.today


class _Namespace(ModuleType):
    """A part of a name in TVMScript, such as ``R.qnn``.

    The module `filled_by` adds its operators; it is imported when a script names one.
    """

    def __init__(self, name: str, filled_by: str = "") -> None:
        super().__init__(name, f"Operators of tvmlab in TVMScript: {name}.")
        self._filled_by = filled_by

    def __getattr__(self, name: str) -> Any:
        if self._filled_by and not name.startswith("__"):
            importlib.import_module(self._filled_by)
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"TVMScript has no {self.__name__}.{name}")


def name_in_script(name: str, make: Callable[..., relax.Expr]) -> None:
    """Let TVMScript write ``R.NAME`` for an operator, such as ``"relax.qnn.requantize"``.

    ``make(*operands, **attributes)`` makes the call.
    """
    _, first, *middle, last = name.split(".")
    space = _SPACES[first]
    for part in middle:
        space = vars(space).setdefault(part, _Namespace(f"{space.__name__}.{part}"))

    def call(*operands: Any, **attributes: Any) -> relax.Expr:
        return make(*map(_operand, operands), **attributes)

    call.__name__ = call.__qualname__ = last
    call.__doc__ = f"Call {name}: its operands in order, its attributes by their names."
    setattr(space, last, call)


def _operand(operand: Any) -> Any:
    """Make a tuple of operands that a script writes in parentheses."""
    if isinstance(operand, (tuple, list)):
        return relax.Tuple([_operand(field) for field in operand])
    return operand


_SPACES = {
    "qnn": _Namespace("R.qnn", "tvmlab.qnn.rows"),
    "relay": _Namespace("R.relay", "tvmlab.ir.operators"),
}
# What a script calls R: what its reader uses by default, and `tvm.script.relax`.
for _script in (tvm.relax.script.parser, tvm.relax.script):
    for _name, _space in _SPACES.items():
        if not hasattr(_script, _name):
            setattr(_script, _name, _space)

_INFERENCES: dict[str, Infer] = {}
_EXPANSIONS: dict[str, Expand] = {}

for _name in errors.__all__:
    # Once for the way into TVM, which turns a class into a name, and once for the way out.
    tvm_ffi.register_error(f"tvmlab.{_name}", getattr(errors, _name))
    tvm_ffi.register_error(f"tvmlab.{_name}", _from_words(getattr(errors, _name)))
