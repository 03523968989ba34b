"""The row of ``einsum``: sums of products, said in letters.

The source is `src/relay/op/tensor/math.cc` of TVM 0.18. Relax calls the letters ``subscripts``.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..table import Attribute, Operator, add
from .common import Operands, Values, Written


def _einsum(operands: Operands, a: Values) -> relax.Expr:
    return op.einsum(operands[0], a["equation"])


def _einsum_back(call: relax.Call) -> Written:
    return list(call.args), {"equation": str(call.attrs.subscripts)}


add(
    Operator(
        "einsum",
        "relax.einsum",
        ("data",),
        (Attribute("equation", "str", ""),),
        _einsum,
        _einsum_back,
    )
)
