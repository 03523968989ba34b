"""Rows of the quantized operators in Relay's table, derived from the operators' definitions."""

from __future__ import annotations

import inspect
from typing import Any

from tvm import relax

from ..ir import dialect
from ..ir.operators.common import Operands, Values, Written
from ..ir.table import REQUIRED, Attribute, add, in_script
from ..ir.table import Operator as Row
from . import op  # noqa: F401 (defines the operators)
from .operator import OPERATORS, Operator

_KINDS = {
    **{"int": "int", "int | None": "int", "float": "float", "bool": "bool", "str": "str"},
    **{"Sequence[int]": "ints", "Sequence[int] | None": "ints"},
}


def _row(operator: Operator) -> None:
    whole = f"relax.qnn.{operator.name}"

    def read(given: Operands, values: Values) -> relax.Expr:
        return dialect.typed_call(whole, given, values)

    def write(call: relax.Call) -> Written:
        return call.args[:], dialect.attributes(call)

    def default(value: Any) -> Any:
        if value in (..., inspect.Parameter.empty):
            return REQUIRED
        return list(value) if isinstance(value, tuple) else value

    usual = {name: default(p.default) for name, p in operator.attributes.items()}
    relays = usual | {name: default(value) for name, value in operator.relay.items()}
    row = Row(
        f"qnn.{operator.name}",
        whole,
        operator.operands,
        tuple(
            Attribute(name, _KINDS[p.annotation], relays[name])
            for name, p in operator.attributes.items()
        ),
        read,
        write,
        tuple(operator.parameters),
        {name: usual[name] for name in operator.relay},
    )
    in_script(add(row), whole)


for _operator in OPERATORS.values():
    _row(_operator)
