"""One table for both ways: how Relay and Relax spell the same operator.

A row says Relay's name, operands and attributes (in the order in which Relay prints them, with
their defaults) and how to go from one to the other: `read` makes the Relax call, `write` takes it
apart again. Relay's operators that Relax lacks are registered under ``relax.relay.NAME`` (see
`tvmlab.ir.dialect`), so that each Relay call is one Relax call, and stays so on the way back.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.relax import Call, Expr, ShapeExpr

from ..errors import RelayError
from . import dialect, script

REQUIRED = object()
"""The default of an attribute that every call has to give."""


@dataclass(frozen=True)
class Attribute:
    """An attribute of a Relay operator.

    Attributes
    ----------
    name : str
        Relay's name.
    kind : str
        ``"int"``, ``"float"``, ``"number"`` (a float; given as an integer it stays one),
        ``"bool"``, ``"str"`` (dtypes too), ``"ints"`` (a list, nested or not, or None) or
        ``"any"`` (an integer boxed in the metadata section, or a list).
    default : object
        What a call that leaves it out means; `REQUIRED` if none may.
    """

    name: str
    kind: str
    default: Any = REQUIRED


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    Attributes
    ----------
    name : str
        Relay's name, such as ``"nn.conv2d"``.
    relax : str
        The Relax operator's whole name, such as ``"relax.nn.conv2d"``.
    operands : tuple of str
        Relay's operands, in order.
    attributes : tuple of Attribute
        In the order in which Relay prints them.
    read : callable
        ``read(operands, attributes)`` makes the Relax expression, one call. The operands are
        typed Relax expressions; the attributes are plain Python values and complete.
    write : callable
        ``write(call)`` gives Relay's operands and all attributes, or None where this row is not
        the one for this call.
    signature : tuple of str
        The order of arguments in Relay's Python function, where it is not operands, then
        attributes.
    defaults : dict of str to object
        Where Relay's Python function has other defaults than the operator itself.
    also : tuple of str
        Further Relax operators that this row writes, for Relay operators that have two forms.
    """

    name: str
    relax: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    read: Callable[[Sequence[Expr], dict[str, Any]], Expr]
    write: Callable[[Call], tuple[Sequence[Expr], dict[str, Any]] | None]
    signature: tuple[str, ...] = ()
    defaults: dict[str, Any] | None = None
    also: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Attribute]:
        """The attributes by their names."""
        return {attribute.name: attribute for attribute in self.attributes}


_BY_NAME: dict[str, Operator] = {}
_BY_RELAX: dict[str, list[Operator]] = {}


def add(row: Operator) -> Operator:
    """Put a row into the table."""
    assert row.name not in _BY_NAME, row.name
    _BY_NAME[row.name] = row
    for whole in (row.relax, *row.also):
        _BY_RELAX.setdefault(whole, []).append(row)
    return row


def add_ours(
    name: str,
    operands: Sequence[str],
    attributes: Sequence[Attribute],
    infer: dialect.Infer,
    expand: dialect.Expand | None,
    *,
    relax_name: str | None = None,
    signature: tuple[str, ...] = (),
    defaults: dict[str, Any] | None = None,
) -> Operator:
    """Put an operator into the table that Relax lacks, and register it as one of ours.

    Parameters
    ----------
    name, operands, attributes, signature, defaults
        As in `Operator`.
    infer, expand
        As in `tvmlab.ir.dialect.register`.
    relax_name : str, optional
        ``relax.relay.NAME`` unless it is given.
    """
    whole = relax_name or f"relax.relay.{name}"
    dialect.register(whole, operands, infer, expand)

    def read(given: Sequence[Expr], values: dict[str, Any]) -> Expr:
        return dialect.typed_call(whole, given, values)

    def write(call: Call) -> tuple[Sequence[Expr], dict[str, Any]]:
        return list(call.args), dialect.attributes(call)

    row = Operator(
        name, whole, tuple(operands), tuple(attributes), read, write, signature, defaults
    )
    in_script(row, whole)
    return add(row)


def in_script(row: Operator, whole: str) -> None:
    """Let TVMScript say ``R.NAME`` for a row's operator of ours, with the row's defaults.

    Parameters
    ----------
    row : Operator
        The row.
    whole : str
        The operator of ours, such as ``"relax.qnn.conv2d"``.
    """

    def make(*given: Expr, **values: Any) -> Call:
        return dialect.typed_call(whole, given, coerce(row, values, python=True))

    script.add(whole, make)


def find(name: str) -> Operator | None:
    """Find Relay's operator of a name."""
    return _BY_NAME.get(name)


def closest(name: str) -> str | None:
    """Find the known Relay name that is nearest to another."""
    found = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.65)
    return found[0] if found else None


def names() -> list[str]:
    """List the Relay names that the table knows, in order."""
    return sorted(_BY_NAME)


def rows() -> list[Operator]:
    """List the rows, in the order of their names."""
    return [_BY_NAME[name] for name in names()]


def relax_names(name: str) -> tuple[str, ...]:
    """Give the Relax names of a Relay operator that is known, the usual one first."""
    row = _BY_NAME[name]
    return (row.relax, *row.also)


def relay_names(whole: str) -> frozenset[str]:
    """Give the Relay names of a Relax operator, such as ``"relax.nn.conv2d"``: none, or some."""
    return frozenset(row.name for row in _BY_RELAX.get(whole, ()))


def written(call: Call) -> tuple[Operator, Sequence[Expr], dict[str, Any]] | None:
    """Find how Relay says a Relax call.

    Parameters
    ----------
    call : tvm.relax.Call
        A call of an operator, typed.

    Returns
    -------
    tuple of Operator, sequence of Expr, dict, or None
        The row, Relay's operands and all of its attributes; None where Relay has no such operator.
    """
    if not isinstance(call.op, ir.Op):
        return None
    for row in _BY_RELAX.get(call.op.name, ()):
        found = row.write(call)
        if found is not None:
            return row, *found
    return None


def coerce(row: Operator, given: Mapping[str, Any], *, python: bool = False) -> dict[str, Any]:
    """Complete the attributes of a call, as plain Python values.

    Parameters
    ----------
    row : Operator
        The operator.
    given : mapping of str to object
        The attributes that the call gives; TVM's and NumPy's numbers are welcome.
    python : bool
        Whether the call is one of Relay's Python function, whose defaults may be others.

    Returns
    -------
    dict
        Every attribute of the row, in its order.

    Raises
    ------
    RelayError
        An attribute is unknown, is of the wrong kind, or is missing.
    """
    for name in given:
        if name not in row.by_name:
            near = difflib.get_close_matches(name, row.by_name, n=1, cutoff=0.4)
            raise RelayError(
                f"{row.name} has no attribute {name!r}",
                where=row.name,
                fix=f"did you mean {near[0]!r}?"
                if near
                else f"it has {', '.join(row.by_name) or 'no attributes'}",
            )
    usual = row.defaults or {}
    complete = {}
    for attribute in row.attributes:
        name = attribute.name
        if name in given:
            complete[name] = _of_kind(row, attribute, given[name])
        elif name in usual and (python or attribute.default is REQUIRED):
            complete[name] = dialect.plain(usual[name])
        elif attribute.default is not REQUIRED:
            complete[name] = dialect.plain(attribute.default)
        else:
            raise RelayError(
                f"{row.name} needs the attribute {name!r}", where=row.name, fix=f"give {name}=..."
            )
    return complete


def _of_kind(row: Operator, attribute: Attribute, value: Any) -> Any:
    """Take a value for an attribute of a kind, or raise `RelayError`."""
    kind = attribute.kind
    if value is None and (kind in ("ints", "any") or attribute.default is None):
        return None
    if value is None and attribute.default == "":
        return ""
    found = _number(value)
    if kind in ("int", "number", "float", "bool") and found is not None:
        whole = isinstance(found, int)
        if kind == "bool" and (isinstance(found, bool) or found in (0, 1)):
            return bool(found)
        if kind == "float" and not isinstance(found, bool):
            return float(found)
        if not isinstance(found, bool) and (kind == "number" or (kind == "int" and whole)):
            return found
    if kind == "str" and isinstance(value, (str, np.dtype, type, ir.PrimType)):
        # What a tensor's type has for a dtype, `checked_type.dtype`, is a type itself.
        named = isinstance(value, (str, ir.PrimType))
        return str(value) if named else np.dtype(value).name
    if kind == "any":
        return _ints(value, found, value)
    if kind == "ints" and (listed := _ints(value, found, None)) is not None:
        return listed if isinstance(listed, list) else [listed]
    what = {"int": "an integer", "bool": "True or False", "str": "a string", "ints": "integers"}
    raise RelayError(
        f"the attribute {attribute.name!r} of {row.name} is {what.get(kind, 'a number')}, "
        f"not {value!r}",
        where=row.name,
    )


def _number(value: Any) -> bool | int | float | None:
    """Take Python's, NumPy's and TVM's numbers; None for anything else."""
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
    """Take an integer, or a list of such, nested or not, for what it is."""
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(value, ShapeExpr):
        value = list(value.values)
    if not isinstance(value, (str, bytes)) and isinstance(value, Sequence | np.ndarray):
        items = [_ints(item, _number(item), None) for item in value]
        return otherwise if any(item is None for item in items) else items
    return otherwise
