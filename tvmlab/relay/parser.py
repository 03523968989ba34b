"""``tvm.parser``: Relay's text, read by `tvmlab.relay.fromtext`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph
from ..ir.text import lexer
from ..ir.text.printer import astext
from ..ir.text.reader import fromtext as _read
from . import op

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
        Functions that the text may call, which the module gets too.
    init_meta_table : mapping, optional
        Relay's; constants come from the text's own metadata section.

    Raises
    ------
    RelayError
        The text cannot be read, or there is a table of constants besides.
    """
    if init_meta_table:
        raise RelayError(
            "constants are not given beside the text",
            where="tvm.parser.parse(init_meta_table=...)",
            fix="put them into the text's metadata section: print with show_meta_data=True",
        )
    if init_module is not None:
        source = _joined(source, astext(init_module))
    return fromtext(source)


def _joined(source: str, other: str) -> str:
    """Put the functions of another text into a text; one of them may have constants."""
    head, mark, constants = source.partition("#[metadata]")
    functions, also, others = other.partition("#[metadata]")
    if mark and also:
        raise RelayError(
            "the text and the module that it begins with both have constants",
            where="tvm.parser.parse(init_module=...)",
            fix="read the text alone, and update the module with it",
        )
    functions = functions.partition("\n")[2] if functions.startswith("#[version") else functions
    return "".join([head, "\n", functions, mark or also, constants or others])


def fromtext(source: str, source_name: str = "from_string") -> ir.IRModule:
    """Read a module; see `parse`."""
    return _read(source)


def parse_expr(source: str) -> relax.Expr:
    """Read one expression: a function, a graph, lets, an operator or a function's name.

    Raises
    ------
    RelayError
        A variable is free that the text does not declare with ``free_var``.
    """
    tokens = [token for token in lexer.tokens(source) if token.kind != "VERSION"]
    kinds = [token.kind for token in tokens]
    if kinds[0] == "def":
        raise RelayError("the text is a module, not an expression", fix="read it with parse")
    if kinds in (["NAME", "END"], ["GLOBAL", "END"]):
        name = tokens[0].value
        return ir.GlobalVar(name[1:]) if kinds[0] == "GLOBAL" else op.get(name)
    main = _read(source)["main"]
    if kinds[0] == "fn" and kinds[-2] == "}" and not _ends_early(kinds):
        return main.without_attr("global_symbol")
    declared = {name.value[1:] for mark, name in pairwise(tokens) if mark.kind == "free_var"}
    free = [param.name for param in main.params if param.name not in declared]
    if free:
        raise RelayError(
            f"nothing binds {', '.join(f'%{name}' for name in free)}",
            where=source.strip().splitlines()[0],
            fix=f"declare what is free: free_var %{free[0]}: Tensor[(1,), float32];",
        )
    return main.body if "let" in kinds else graph.inline_bindings(main.body)


def _ends_early(kinds: list[str]) -> bool:
    """Return whether something follows the function that a text begins with."""
    depth = 0
    for at, kind in enumerate(kinds):
        depth += (kind == "{") - (kind == "}")
        if kind == "}" and depth == 0:
            return at != len(kinds) - 2
    return True
