"""The two operators that mark where a compiler's part of a graph begins and ends.

They compute nothing: each stands on an edge and gives its operand back. The passes of
`tvmlab.ir.partition` put them there and take them away again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ..table import Attribute, add_ours


def _infer(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    return types[0]


def _expand(operands: Sequence[relax.Expr], a: dict[str, Any]) -> relax.Expr:
    return operands[0]


BEGIN = add_ours(
    "annotation.compiler_begin", ("data",), (Attribute("compiler", "str"),), _infer, _expand
).relax
END = add_ours(
    "annotation.compiler_end", ("data",), (Attribute("compiler", "str"),), _infer, _expand
).relax
