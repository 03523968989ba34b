"""``tvm.parser``: Relay's text, read by `tvmlab.relay.fromtext`."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph
from ..ir.text import lexer
from ..ir.text.reader import fromtext as _read
from . import op
from .expr import refuse


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: ir.IRModule | None = None,
    init_meta_table: Any = None,
) -> ir.IRModule:
    """Read a module of Relay text, whose constants are in its metadata section.

    Raises `RelayError` where the text cannot be read, or another argument of Relay's is given.
    """
    fix = "put all functions and constants into the text"
    refuse("parse", fix, init_module=init_module, init_meta_table=init_meta_table)
    return _read(source)


fromtext = parse


def parse_expr(source: str) -> relax.Expr:
    """Read one expression: a function, a graph, lets, an operator or a function's name.

    Raises `RelayError` for a free variable that the text does not declare with ``free_var``.
    """
    tokens = [token for token in lexer.tokens(source) if token.kind != "VERSION"]
    kinds = [token.kind for token in tokens]
    if kinds[0] == "def":
        raise RelayError("the text is a module, not an expression", fix="read it with parse")
    if kinds in (["NAME", "END"], ["GLOBAL", "END"]):
        name = tokens[0].value
        return ir.GlobalVar(name[1:]) if kinds[0] == "GLOBAL" else op.get(name)
    main = _read(source)["main"]
    # A text is one function where the first closed brace is its end.
    depths = [*accumulate((kind == "{") - (kind == "}") for kind in kinds)]
    closed = [at for at, kind in enumerate(kinds) if kind == "}" and depths[at] == 0]
    if kinds[0] == "fn" and closed[:1] == [len(kinds) - 2]:
        return main.without_attr("global_symbol")
    declared = {name.value[1:] for mark, name in pairwise(tokens) if mark.kind == "free_var"}
    free = [param.name for param in main.params if param.name not in declared]
    if free:
        fix = f"declare what is free: free_var %{free[0]}: Tensor[(1,), float32];"
        raise RelayError(f"nothing binds {', '.join(f'%{name}' for name in free)}", fix=fix)
    return main.body if "let" in kinds else graph.inline_bindings(main.body)
