"""``tvm.parser``: Relay's text, read by `tvmlab.relay.fromtext`."""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from .. import graph
from ..reader import fromtext as _read

__all__ = ["fromtext", "parse", "parse_expr"]


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: ir.IRModule | None = None,
    init_meta_table: Any = None,
) -> ir.IRModule:
    """Read a module.

    Parameters
    ----------
    source : str
        Relay text.
    source_name : str
        Relay's, for messages; `tvmlab.errors.RelayError` shows the line itself.
    init_module : tvm.ir.IRModule, optional
        Functions that the module gets besides.
    init_meta_table : mapping, optional
        Relay's; constants come from the text's own metadata section.
    """
    made = _read(source)
    if init_module is not None:
        made = made.clone()
        made.update(init_module)
    return made


def fromtext(source: str, source_name: str = "from_string") -> ir.IRModule:
    """Read a module; see `parse`."""
    return parse(source, source_name)


def parse_expr(source: str) -> relax.Expr:
    """Read one expression; its free variables are variables of the graph that is given."""
    main = _read(source)["main"]
    return graph.to_graph(main)
