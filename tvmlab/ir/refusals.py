"""What TVM says against a call, in words: its messages hold whole operators, written out."""

from __future__ import annotations

import re
from typing import Any

from tvm import ir

from ..support.wording import telling
from . import table

__all__ = ["explain", "named"]

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)', re.DOTALL)
_NUMBER = re.compile(r"T\.int64\((-?\d+)\)")


def explain(problem: Exception) -> str:
    """Return the line that says what is wrong, with operators by their names."""
    return _NUMBER.sub(r"\1", _OPERATOR.sub(r"\1", telling(problem)))[:300]


def named(op: Any) -> str:
    """Give Relay's name of an operator where it has one, and what is called otherwise."""
    if not isinstance(op, ir.Op):
        return getattr(op, "name_hint", None) or "a function"
    row = next((row for row in table.rows() if op.name in (row.relax, *row.also)), None)
    return row.name if row else str(op.name)
