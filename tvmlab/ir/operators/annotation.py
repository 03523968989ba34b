"""The two operators that mark where a compiler's part of a graph begins and ends."""

from __future__ import annotations

from tvm import relax

from ..table import stands_for

BEGIN = "relax.relay.annotation.compiler_begin"
END = "relax.relay.annotation.compiler_end"


@stands_for("annotation.compiler_begin", "data", "compiler:str", infer=lambda types, _: types[0])
@stands_for("annotation.compiler_end", "data", "compiler:str", infer=lambda types, _: types[0])
def _unmarked(data: relax.Expr, compiler: str) -> relax.Expr:
    return data
