"""One table for both ways: how Relay and Relax spell the same operator.

A row says Relay's name, operands and attributes (in the order in which Relay prints them, with
their defaults) and how to go from one to the other: `read` makes the Relax call, `write` takes it
apart again. Relay's operators that Relax lacks are registered under ``relax.relay.NAME`` (see
`tvmlab.dialect`), so that each Relay call is one Relax call, and stays so on the way back.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import ir, relax

from .. import dialect

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
        ``"int"``, ``"float"``, ``"bool"``, ``"str"`` (dtypes too), ``"ints"`` (a list, nested or
        not, or None) or ``"any"`` (an integer boxed in the metadata section, or a list).
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
    """

    name: str
    relax: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    read: Callable[[Sequence[relax.Expr], dict[str, Any]], relax.Expr]
    write: Callable[[relax.Call], tuple[Sequence[relax.Expr], dict[str, Any]] | None]
    signature: tuple[str, ...] = ()
    defaults: dict[str, Any] | None = None

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
    _BY_RELAX.setdefault(row.relax, []).append(row)
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
        As in `tvmlab.dialect.register`.
    relax_name : str, optional
        ``relax.relay.NAME`` unless it is given.
    """
    whole = relax_name or f"relax.relay.{name}"
    dialect.register(whole, operands, infer, expand)

    def read(given: Sequence[relax.Expr], values: dict[str, Any]) -> relax.Expr:
        return dialect.call(whole, given, values)

    def write(call: relax.Call) -> tuple[Sequence[relax.Expr], dict[str, Any]]:
        return list(call.args), dialect.attributes(call)

    return add(
        Operator(name, whole, tuple(operands), tuple(attributes), read, write, signature, defaults)
    )


def find(name: str) -> Operator | None:
    """Find Relay's operator of a name."""
    return _BY_NAME.get(name)


def closest(name: str) -> str | None:
    """Find the known Relay name that is nearest to another."""
    found = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    return found[0] if found else None


def names() -> list[str]:
    """List the Relay names that the table knows, in order."""
    return sorted(_BY_NAME)


def rows() -> list[Operator]:
    """List the rows, in the order of their names."""
    return [_BY_NAME[name] for name in names()]


def relax_names(name: str) -> str:
    """Give the Relax name of a Relay operator that is known."""
    return _BY_NAME[name].relax


def written(call: relax.Call) -> tuple[Operator, Sequence[relax.Expr], dict[str, Any]] | None:
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
