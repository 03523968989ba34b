"""Register tvmlab's own operators with Relax.

An operator has a name, operands, a type rule and, in most cases, an expansion into Relax's
operators. Its attributes are a plain dictionary (`ir.DictAttrs`), so that TVM prints, matches and
saves it like any other operator.

TVM prints an operator as ``R.qnn.conv2d(...)``, and its reader of TVMScript looks ``R.NAME`` up in
the module `tvm.relax.script.parser`, to which `name_in_script` adds namespaces.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tvm.relax.script
import tvm_ffi
from tvm import ir, relax

from .. import errors

#: The attribute of ``main`` in which importers store the model's names of its outputs: a list of
#: str, one per output; each field of a tuple is an output.
OUTPUT_NAMES = "output_names"
#: The attribute of ``main`` with the dtypes of its inputs and outputs of 2 or 4 bits, by name.
NARROW = "narrow"
#: The dtypes of 2 and 4 bits, each with the dtype that holds its values in TVM, whose code for
#: CPUs cannot address less than a byte.
WIDENED = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
WIDENED["float4_e2m1fn"] = "float8_e4m3fn"

Infer = Callable[[Sequence[ir.Type], dict[str, Any]], ir.Type]
Expand = Callable[[Sequence[relax.Expr], dict[str, Any]], relax.Expr]


def register(
    name: str, operands: Sequence[str], infer: Infer, expand: Expand | None = None
) -> ir.Op:
    """Register a pure Relax operator, such as ``"relax.qnn.requantize"``, once.

    ``infer(types, attributes)`` returns the type of the result; the operands' types can be partly
    unknown. ``expand(operands, attributes)`` returns an equivalent expression of other Relax
    operators, which is the operator's legalization.
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
        op.set_attr("FLegalize", lambda _, call: expanded(call))
        _EXPANSIONS[name] = expand
    _INFERENCES[name] = infer
    return op


def call(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> relax.Call:
    """Make a call of a registered operator, without its type."""
    return relax.Call(
        ir.Op.get(name), list(operands), tvm.ir.make_node("ir.DictAttrs", **attributes)
    )


def typed_call(name: str, operands: Sequence[relax.Expr], attributes: dict[str, Any]) -> relax.Call:
    """Make a call of a registered operator, with its type if all operands have one."""
    made = call(name, operands, attributes)
    types = [operand.ty for operand in operands]
    if all(ty is not None and type(ty) is not ir.Type for ty in types):
        relax.expr._update_type(made, _INFERENCES[name](types, attributes))
    return made


def attributes(call: relax.Call) -> dict[str, Any]:
    """Return a call's attributes as plain Python values: lists, str, int, float, bool, None."""
    return {name: plain(value) for name, value in call.attrs.items()}


def plain(value: Any) -> Any:
    """Convert an attribute value of TVM to plain Python."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [plain(item) for item in value[:]]  # a slice is one call into TVM
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return value.value
    return value


def expanded(call: relax.Call) -> relax.Expr | None:
    """Return the expansion of a call, or None if its operator has no expansion."""
    expand = _EXPANSIONS.get(call.op.name)
    return expand and expand(list(call.args), attributes(call))


def ExpandOperators() -> tvm.transform.Pass:
    """Expand the registered operators, so that passes for layout and fusion see only Relax's.

    Operators without an expansion, such as the quantized ones, are kept. Tensors of infinities or
    NaN are broadcast from one number, because upstream's `full` cannot be lowered for these.
    """
    filled = {"relax.full": _filled, "relax.full_like": _filled}
    mine = {*_EXPANSIONS, *filled}
    others = [name for name in ir.Op.list_op_names() if name not in mine]
    return relax.transform.LegalizeOps(filled, skip_ops=others)


def _filled(_: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Broadcast a number that is not finite."""
    shape, number = call.args
    if str(call.op.name) == "relax.full_like":
        shape = shape.ty.shape
    known = isinstance(number, ir.GenericConst) and "float" in str(number.ty.dtype)
    if shape is None or not known or np.isfinite(float(number.value.numpy().reshape(()))):
        return call
    made, dtype = relax.op.broadcast_to(number, shape), str(call.ty.dtype)
    return made if dtype == str(number.ty.dtype) else relax.op.astype(made, dtype)


def _from_words(kind: type[errors.TvmlabError]) -> type:
    """Make a type that restores an error from its message, because TVM passes only the message."""

    def again(cls: type, words: str) -> errors.TvmlabError:
        words, _, fix = words.partition("\n  to do: ")
        what, _, where = words.partition("\n  where: ")
        return kind(what, where=where or None, fix=fix or None)

    return type(kind.__name__, (), {"__new__": again})


class Attributes(Mapping[str, Any]):
    """The attributes of a call as Relay had them, with the row of `tvmlab.ir.table`."""

    def __init__(self, row: Any, values: dict[str, Any], today: ir.Attrs | None) -> None:
        self.row, self.today, self._values = row, today, values

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_" or name not in self:
            raise AttributeError(f"{self.row.name} has no attribute {name!r}")
        return self[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __tvm_ffi_object__(self) -> Any:
        """Return the call's own attributes, which TVM expects."""
        return self.today


class _Namespace(ModuleType):
    """A namespace in TVMScript; the module `filled_by` is imported when a script uses it."""

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
    """Let TVMScript read ``R.NAME``, an operator whose calls ``make`` makes."""
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
    """Convert a tuple of operands, which a script writes in parentheses."""
    if isinstance(operand, (tuple, list)):
        return relax.Tuple([_operand(field) for field in operand])
    return operand


_SPACES = {
    "qnn": _Namespace("R.qnn", "tvmlab.qnn.rows"),
    "relay": _Namespace("R.relay", "tvmlab.ir.operators"),
}
# Both modules that a script can call R: the default of the reader, and `tvm.script.relax`.
for _script in (tvm.relax.script.parser, tvm.relax.script):
    for _name, _space in _SPACES.items():
        if not hasattr(_script, _name):
            setattr(_script, _name, _space)

_INFERENCES: dict[str, Infer] = {}
_EXPANSIONS: dict[str, Expand] = {}

for _name in errors.__all__:
    # The first call registers the class by name for TVM, the second the way back from the name.
    tvm_ffi.register_error(f"tvmlab.{_name}", getattr(errors, _name))
    tvm_ffi.register_error(f"tvmlab.{_name}", _from_words(getattr(errors, _name)))
