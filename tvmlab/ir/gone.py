"""Relay names and operators that tvmlab does not provide, with their counterparts in today's TVM.

Names are in `gone_names.txt`, operators in `gone_operators.txt`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from importlib import resources
from importlib.abc import MetaPathFinder
from typing import Any, NamedTuple

from tvm import relax

from ..errors import RelayError
from . import table

__all__ = ["ROWS", "RelayImportError", "RelayNameError", "Row", "find", "missing", "operator"]


class RelayNameError(RelayError, AttributeError):
    """A missing name in a module, which ``hasattr`` and ``getattr`` with a default handle."""


class RelayImportError(RelayError, ModuleNotFoundError):
    """A missing name in an import, whose message Python would replace for a `RelayNameError`."""


class Row(NamedTuple):
    """A removed name (without ``tvm.`` for Relay's), its counterpart, and a remark."""

    old: str
    today: str | None
    remark: str


def _lines(name: str) -> list[str]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and line[0] != "#"]


def _row(line: str) -> Row:
    old, today, remark = (part.strip() for part in line.split("|"))
    return Row(old, None if today == "-" else today, remark)


ROWS = {row.old: row for row in map(_row, _lines("gone_names.txt"))}

_OPERATORS = {
    name: today
    for line in _lines("gone_operators.txt")
    for name, _, today in (word.partition("=") for word in line.split())
}


def is_operator(name: str) -> bool:
    """Return whether Relay had an operator with a name."""
    return name in _OPERATORS


def operator(name: str) -> str | None:
    """Return today's counterpart of one of Relay's operators, or None."""
    if _OPERATORS.get(name):
        return f"tvm.relax.{_OPERATORS[name]}"
    found: object = relax.op
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"tvm.relax.op.{name}" if callable(found) else None


def unknown_operator(name: str) -> tuple[str, str]:
    """Return the message and the fix of an error for an operator that the table lacks."""
    if is_operator(name):
        today = operator(name)
        fix = f"today's counterpart is {today}" if today else "today's TVM has no counterpart of it"
        return f"{name} is an operator of Relay's that tvmlab does not carry", fix
    near = table.closest(name)
    fix = f"did you mean {near}?" if near else "see tvmlab.ir.table for those that are"
    return f"Relay's operator {name} is not known here", fix


def error(name: str, counterpart: str | None, remark: str = "") -> RelayNameError:
    """Make the error for a name that tvmlab does not provide, with its counterpart and a remark."""
    fix = "today's TVM has no counterpart of it"
    if counterpart:
        fix = f"use today's counterpart: {counterpart}"
    what = f"tvmlab does not carry {name}, a name of Relay's time"
    return RelayNameError(what, where=name, fix=f"{fix} ({remark})" if remark else fix)


def find(name: str) -> Row | None:
    """Return the row of a name, or of the nearest enclosing module."""
    module, dot, last = name.rpartition(".")
    found = ROWS.get(name)
    while found is None and dot:
        if module in ROWS:
            # Old modules export names of their submodules: autotvm.XGBTuner is from autotvm.tuner.
            inner = (row for old, row in ROWS.items() if old.startswith(f"{module}."))
            return next((row for row in inner if row.old.endswith(f".{last}")), ROWS[module])
        module, dot, _ = module.rpartition(".")
    return found


def raise_gone(module: str, name: str) -> None:
    """Raise the error for a removed name of a ``relay`` module; return for any other name."""
    row = ROWS.get(".".join(part for part in ("relay", module, name) if part))
    if row is not None:
        raise error(*row)


def missing(module: str, name: str, known: Iterable[str] = ()) -> Exception:
    """Make the error for a name missing in a module of `tvmlab.relay`, with the closest name."""
    raise_gone(module, name)
    whole = ".".join(part for part in (module, name) if part)
    what = f"tvmlab.relay has no {whole}"
    if name.startswith("__"):
        return AttributeError(what)
    near = difflib.get_close_matches(name, [one for one in known if one[:1] != "_"], n=1)
    where = ".".join(part for part in ("relay", whole) if part)
    meant = ".".join(part for part in ("relay", module, *near) if part)
    fix = f"did you mean {meant}?" if near else None
    return RelayNameError(what, where=where, fix=fix)


class ImportFinder(MetaPathFinder):
    """Import finder that keeps the message of `missing` for ``from tvmlab.relay import NAME``.

    Python replaces the error of a missing attribute, but first looks for a submodule.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise the error of the module for a name that it lacks."""
        module, _, last = name.rpartition(".")
        if name.startswith("tvmlab.relay.") and module in sys.modules:
            try:
                getattr(sys.modules[module], last)
            except RelayNameError as error:
                raise RelayImportError(error.what, where=error.where, fix=error.fix) from None
            except AttributeError:
                pass
