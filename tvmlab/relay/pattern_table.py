"""Backends' pattern tables, by the names of their compilers.

The source is Relay's ``python/tvm/relay/op/contrib/register.py``. Tables of libraries that Relay
came with are not carried; those of a backend's own are what this is for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..ir import gone

__path__: list[str] = []  # see gone.ImportFinder
__all__ = ["get_pattern_table", "register_pattern_table"]

Table = list[tuple[Any, ...]]
_TABLES: dict[str, Table] = {}


def register_pattern_table(compiler: str, table: Callable[[], Table] | None = None) -> Any:
    """Register the patterns that a compiler takes.

    Parameters
    ----------
    compiler : str
        Its name, such as ``"ethos-n"``.
    table : callable, optional
        Gives the table: pairs of a name and a pattern, or triples with a check besides. Left out, a
        decorator is returned.
    """

    def register(made: Callable[[], Table]) -> Callable[[], Table]:
        _TABLES[compiler] = made()
        return made

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Table | None:
    """Give a compiler's table; None where none was registered."""
    return _TABLES.get(compiler)


def __getattr__(name: str) -> Any:
    if name == "register":  # Relay had the functions there, and here too
        return sys.modules[__name__]
    raise gone.missing("op.contrib", name, globals())
