"""``qnn.quantize`` of constants is a constant."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ...ir.patterns import (
    DFPattern,
    DFPatternCallback,
    is_constant,
    is_op,
    rewrite_functions,
)
from .. import arithmetic


class QuantizeConstants(DFPatternCallback):
    """The rule: quantize constant data with a constant scale and zero point now.

    PyTorch's frontend leaves weights and biases float, each under a ``qnn.quantize`` in the graph.
    The result is what `tvmlab.qnn.arithmetic.quantize` computes, one scale or one a channel, in any
    of the operator's dtypes. A call that rounds as ONNX does is none of Relay's and stays.
    """

    def __init__(self, require_type: bool = False) -> None:
        super().__init__(require_type)
        self.data, self.scale, self.zero_point = is_constant(), is_constant(), is_constant()
        self.pattern = is_op("qnn.quantize")(self.data, self.scale, self.zero_point)

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Give the constant."""
        if post.attrs.get("rounding") == "ONNX":
            return post
        data, scale, zero = (
            node_map[part][0].value.numpy() for part in (self.data, self.scale, self.zero_point)
        )
        axis, dtype = int(post.attrs["axis"]), str(post.attrs["out_dtype"])
        folded = arithmetic.quantize(data, scale, zero, axis, dtype)
        # The operator takes NaN for the largest value, as Relay's did; in a constant it is damage.
        if (holes := np.isnan(data).ravel()).any():
            raise InputError(
                f"element {int(holes.argmax())} of data is NaN, which no integer stands for",
                where="qnn.quantize, operand data",
            )
        return relax.const(folded, dtype)


@tvm.transform.module_pass(opt_level=0, name="QnnQuantizeConstFold")
class QnnQuantizeConstFold:
    """The pass: every ``qnn.quantize`` of three constants becomes a constant.

    Raises
    ------
    InputError
        If a scale is zero, negative or not finite, a zero point is out of its dtype's range, or the
        data hold NaN.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return rewrite_functions(mod, QuantizeConstants(True))
