"""One table for both directions: the notations of the same operator in Relay and Relax.

Relay's operators that Relax lacks are registered as ``relax.relay.NAME`` (see
`tvmlab.ir.dialect`), so that each Relay call is one Relax call.
"""

from __future__ import annotations

import ast
import difflib
import numbers
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax import Call, Expr, ShapeExpr, TensorType, Tuple, TupleType, Var, op

from ..errors import RelayError
from . import dialect, graph

Operands = Sequence[Expr]
Values = dict[str, Any]
Written = tuple[Operands, Values]

_LAYOUT = re.compile("([A-Z]|[1-9][0-9]*[a-z])+")
REQUIRED = object()  # the default of a required attribute


@dataclass(frozen=True)
class Attribute:
    """An attribute of a Relay operator.

    The kind is ``"int"``, ``"float"``, ``"number"`` (integers stay integers), ``"bool"``, ``"str"``
    (also for dtypes), ``"ints"`` (a list, nested or not, or None) or ``"any"`` (a list or an
    integer, which Relay boxes in the metadata section).
    """

    name: str
    kind: str
    default: Any = REQUIRED


@dataclass(frozen=True)
class Operator:
    """A row of the table: Relay's name of an operator, and Relax's name with ``relax.``.

    ``to_relax(operands, attributes)`` makes one Relax call from complete attributes.
    ``from_relax(call)`` returns Relay's operands and all attributes, in the order in which Relay
    prints them, or None if this row does not describe the call. `signature` and `defaults` are
    those of Relay's Python function if they differ; `also` contains the second name in Relax.
    """

    name: str
    relax: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    to_relax: Callable[[Operands, Values], Expr]
    from_relax: Callable[[Call], Written | None]
    signature: tuple[str, ...] = ()
    defaults: Values | None = None
    also: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        """The attributes by name."""
        return {attribute.name: attribute for attribute in self.attributes}


_BY_NAME: dict[str, Operator] = {}
_BY_RELAX: dict[str, list[Operator]] = {}


def add(row: Operator) -> Operator:
    """Add a row to the table."""
    assert row.name not in _BY_NAME, row.name
    _BY_NAME[row.name] = row
    for whole in (row.relax, *row.also):
        _BY_RELAX.setdefault(whole, []).append(row)
    return row


def attributes(spec: str) -> tuple[Attribute, ...]:
    """Parse attributes from ``"axis:int=-1 shape:ints dtype:str="``; ``=`` makes them optional."""
    found = []
    for item in spec.split():
        name, _, rest = item.partition(":")
        kind, equal, text = rest.partition("=")
        default = text if kind == "str" else ast.literal_eval(text or "None")
        found.append(Attribute(name, kind, default if equal else REQUIRED))
    return tuple(found)


def native(
    name: str,
    operands: str,
    spec: str = "",
    relax_name: str = "",
    *,
    to_relax: Callable[..., Expr | None] | None = None,
    from_relax: Callable[[Call], Written | None] | None = None,
    known: Values | Callable[[Call], Values | None] | None = None,
    expand: Callable[..., Expr] | None = None,
    infer: dialect.Infer | None = None,
    signature: str = "",
    defaults: Values | None = None,
    **renamed: str,
) -> None:
    """Add an operator to the table that Relax also has.

    Names are separated by spaces, `spec` is as in `attributes`, and `relax_name` is Relax's name if
    it differs. ``to_relax(*operands, **attributes)`` makes Relax's call (by default it calls
    Relax's function), `from_relax` is as in `Operator` (by default it reads the call's attributes).
    `known` contains the attributes that Relax lacks, or is a function that returns them, or None if
    Relay cannot express the call. `renamed` has Relax's names of attributes, after a "!" if Relax
    has the opposite. If `to_relax` returns None, the call is one of ``relax.relay.NAME``, which
    computes ``expand(*operands, **attributes)``, with the type of this expression or of `infer`.
    """
    whole, ours = f"relax.{relax_name or name}", f"relax.relay.{name}" if expand else ""
    rows, names = attributes(spec), tuple(operands.split())
    make: Callable[..., Expr | None] = to_relax or attrgetter(relax_name or name)(op)
    if expand is not None:
        _register(ours, names, expand, infer)

    def read(given: Operands, values: Values) -> Expr:
        without = known if isinstance(known, dict) else ()
        found = make(*given, **(values if to_relax else arguments(values, without, **renamed)))
        return dialect.typed_call(ours, given, values) if found is None else found

    def write(call: Call) -> Written | None:
        if call.op.name == ours:
            return call.args[:], dialect.attributes(call)
        if from_relax is not None:
            return from_relax(call)
        found = known(call) if callable(known) else known or {}
        if found is None:
            return None
        return call.args[: len(names)], _values(call, rows, renamed, found)

    also = (ours,) if ours not in ("", whole) else ()
    order = tuple(signature.split())
    row = add(Operator(name, whole, names, rows, read, write, order, defaults, also))
    if ours:
        in_script(row, ours)


def stands_for(
    name: str, operands: str, spec: str = "", **more: Any
) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    """Add an operator that Relax lacks to the table, by its `expand` function, as in `native`."""

    def register(expand: Callable[..., Expr]) -> Callable[..., Expr]:
        def to_relax(*_: Expr, **__: Any) -> None:
            return None

        native(name, operands, spec, f"relay.{name}", to_relax=to_relax, expand=expand, **more)
        return expand

    return register


def _register(
    whole: str, names: Sequence[str], expand: Callable[..., Expr], infer: dialect.Infer | None
) -> None:
    def spread(given: Operands, values: Values) -> Expr:
        return expand(*given, **values)

    def derived(types: Sequence[ir.Type], values: Values) -> ir.Type:
        """Infer the type of the expansion, with symbols for unknown sizes."""
        params, open_ = [], False
        for place, ty in enumerate(types):
            if not isinstance(ty, (TensorType, TupleType)) or getattr(ty, "ndim", 0) < 0:
                return TensorType(dtype=None, ndim=-1)
            if isinstance(ty, TensorType) and not isinstance(ty.shape, ShapeExpr):
                open_ = True
                sizes = [tirx.Var(f"n{place}_{axis}", "int64") for axis in range(ty.ndim)]
                ty = TensorType(sizes, ty.dtype)
            params.append(Var(f"p{place}", ty))
        made = expand(*params, **values)
        for node in graph.post_order(made):
            if isinstance(node, Tuple) and not graph.has_type(node):  # its fields had no types
                relax.expr._update_type(node, TupleType([field.ty for field in node.fields]))
            graph.typed(node)
        return _without_symbols(made.ty) if open_ else made.ty

    dialect.register(whole, names, infer or derived, spread)


def _without_symbols(ty: ir.Type) -> ir.Type:
    if isinstance(ty, TupleType):
        return TupleType([_without_symbols(field) for field in ty.fields])
    if all(isinstance(size, tirx.IntImm) for size in ty.shape or ()):
        return ty
    return TensorType(dtype=ty.dtype, ndim=ty.ndim)


def arguments(values: Values, without: Container[str] | None = None, **renamed: str) -> Values:
    """Rename attributes to the arguments of Relax's function; empty strings are omitted."""
    found = {}
    for name, value in values.items():
        today = renamed.get(name, name)
        if value != "" and name not in (without or ()):
            found[today.lstrip("!")] = not value if today[0] == "!" else value
    return found


def _values(call: Call, rows: Sequence[Attribute], renamed: Values, known: Values) -> Values:
    """Read Relay's attributes from those of a Relax call, except those that are `known`."""
    found = dict(known)
    for row in rows:
        if row.name not in known:
            today = renamed.get(row.name, row.name)
            value = getattr(call.attrs, today.lstrip("!"))
            if value is None:
                found[row.name] = None if row.default is REQUIRED else row.default
            else:
                found[row.name] = not value if today[0] == "!" else _PLAIN[row.kind](value)
    data_layout = found.get("data_layout", found.get("layout"))
    if found.get("out_layout") == data_layout is not None:  # Relax always has one
        found["out_layout"] = ""
    return {row.name: found[row.name] for row in rows}


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "bool": bool, "str": str,
    "ints": lambda given: [int(item) for item in given],
}  # fmt: skip


def in_script(row: Operator, whole: str) -> None:
    """Let TVMScript read ``R.NAME`` for a registered operator, with the defaults of its row."""

    def make(*given: Expr, **values: Any) -> Call:
        return dialect.typed_call(whole, given, complete_attributes(row, values, python=True))

    dialect.name_in_script(whole, make)


def find(name: str) -> Operator | None:
    """Return the row of a Relay operator by name, or None."""
    return _BY_NAME.get(name)


def closest(name: str) -> str | None:
    """Return the known Relay name that is closest to another name."""
    found = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.65)
    return found[0] if found else None


def names() -> list[str]:
    """Return the sorted Relay names in the table."""
    return sorted(_BY_NAME)


def rows() -> list[Operator]:
    """Return the rows, sorted by name."""
    return [_BY_NAME[name] for name in names()]


def relax_names(name: str) -> tuple[str, ...]:
    """Return the Relax names of a known Relay operator, the usual name first."""
    row = _BY_NAME[name]
    return (row.relax, *row.also)


def relay_names(whole: str) -> frozenset[str]:
    """Return the Relay names of a Relax operator, such as ``"relax.nn.conv2d"``, possibly none."""
    return frozenset(row.name for row in _BY_RELAX.get(whole, ()))


def written(call: Call) -> tuple[Operator, Sequence[Expr], dict[str, Any]] | None:
    """Return Relay's form of a Relax call: the row, the operands and all attributes, or None."""
    if not isinstance(call.op, ir.Op):
        return None
    for row in _BY_RELAX.get(call.op.name, ()):
        found = row.from_relax(call)
        if found is not None:
            return row, *found
    return None


def complete_attributes(
    row: Operator, given: Mapping[str, Any], *, python: bool = False
) -> dict[str, Any]:
    """Complete the attributes of a call, in the row's order; with `python`, from its `defaults`.

    Raises `RelayError` for an attribute that is unknown, missing or of the wrong kind.
    """
    for name in given:
        if name not in row.by_name:
            near = difflib.get_close_matches(name, row.by_name, n=1, cutoff=0.4)
            has = f"it has {', '.join(row.by_name) or 'no attributes'}"
            fix = f"did you mean {near[0]!r}?" if near else has
            raise RelayError(f"{row.name} has no attribute {name!r}", where=row.name, fix=fix)
    complete = {}
    for name, attribute in row.by_name.items():
        default = attribute.default
        if python or default is REQUIRED:
            default = (row.defaults or {}).get(name, default)
        if name not in given and default is REQUIRED:
            what = f"{row.name} needs the attribute {name!r}"
            raise RelayError(what, where=row.name, fix=f"give {name}=...")
        complete[name] = (
            _of_kind(row, attribute, given[name]) if name in given else dialect.plain(default)
        )
    return complete


def _of_kind(row: Operator, attribute: Attribute, value: Any) -> Any:
    """Convert a value to an attribute's kind, or raise `RelayError`."""
    kind = attribute.kind
    if value is None and (kind in ("ints", "any") or attribute.default is None):
        return None
    if value is None and attribute.default == "":
        return ""
    found = _number(value)
    if kind == "bool" and (isinstance(found, bool) or found in (0, 1)):
        return bool(found)
    if found is not None and not isinstance(found, bool):
        if kind == "float":
            return float(found)
        if kind == "number" or (kind == "int" and isinstance(found, int)):
            return found
    if kind == "str" and isinstance(value, (str, np.dtype, type, ir.PrimType)):
        # The dtype in a tensor's type, `checked_type.dtype`, is itself a type.
        named = isinstance(value, (str, ir.PrimType))
        text = str(value) if named else np.dtype(value).name
        if attribute.name.endswith("layout") and attribute.default not in (text, REQUIRED):
            _check_layout(row, attribute, text)
        return text
    if kind == "any":
        return _ints(value, found, value)
    if kind == "ints" and (listed := _ints(value, found, None)) is not None:
        return listed if isinstance(listed, list) else [listed]
    what = {"int": "an integer", "bool": "True or False", "str": "a string", "ints": "integers"}
    wanted = f"{what.get(kind, 'a number')}, not {value!r}"
    error = f"the attribute {attribute.name!r} of {row.name} must be {wanted}"
    raise RelayError(error, where=row.name)


def _check_layout(row: Operator, attribute: Attribute, layout: str) -> None:
    """Refuse a layout with other axes than the default's."""
    # If the default is empty, the attribute has the axes of the row's first layout.
    defaults = [a.default for a in (attribute, *row.attributes) if a.name.endswith("layout")]
    letters = next(filter(None, defaults))
    inner = {letter.upper() for letter in layout if letter.islower()}
    axes = sorted(filter(str.isupper, layout))
    if not _LAYOUT.fullmatch(layout) or axes != sorted(letters) or not inner <= set(letters):
        what = f"{attribute.name} of {row.name} is {layout!r}, not a permutation of {letters}"
        where = f"{row.name}, attribute {attribute.name}"
        raise RelayError(what, where=where, fix=f"use each of the letters {letters} once")


def _number(value: Any) -> bool | int | float | None:
    """Return the number in a Python, NumPy or TVM value; None for anything else."""
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        value = bool(value.value) if str(value.ty) == "bool" else value.value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def _ints(value: Any, found: bool | int | float | None, otherwise: Any) -> Any:
    """Return an integer, or a list of integers, nested or not, as plain Python."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(value, ShapeExpr):
        value = list(value.values)
    if not isinstance(value, (str, bytes)) and isinstance(value, Sequence | np.ndarray):
        items = [_ints(item, _number(item), None) for item in value]
        return otherwise if any(item is None for item in items) else items
    return otherwise
