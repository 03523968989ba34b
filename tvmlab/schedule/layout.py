"""Activations to NHWC, weights to OHWI: once, at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call

__all__ = ["channels_last"]


@relax.transform.function_pass(opt_level=0)
class FoldTransposes:
    """Compute transposes of constants in NumPy.

    `FoldConstant` does it as well, by compiling a function for each: seconds for a network.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        constant = is_const()
        pattern = is_op("relax.permute_dims")(constant)

        def rewrite(expr: relax.Expr, found: Any) -> relax.Expr:
            value, axes = found[constant].value.numpy(), expr.attrs.axes
            order = None if axes is None else [int(axis) for axis in axes]
            moved = np.ascontiguousarray(np.transpose(value, order))
            return relax.const(moved, str(expr.ty.dtype))

        return rewrite_call(pattern, rewrite, func)


def channels_last() -> tvm.transform.Pass:
    """Make the pass: two-dimensional convolutions in NHWC with OHWI weights.

    `ConvertLayout` carries the layout through the operators between them; transposes of
    activations remain at the network's borders and around operators that fix another layout.
    """
    return tvm.transform.Sequential(
        [
            relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
            relax.transform.CanonicalizeBindings(),
            FoldTransposes(),
            relax.transform.DeadCodeElimination(),
        ]
    )
