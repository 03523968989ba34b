"""Legalizations of the quantized operators: to integer kernels that give the reference's bits.

Importing this package registers one for each operator (``FLegalize``), so that `LegalizeOps` and
all that is built on it, `tvm.compile` too, take them as they take Relax's own.
"""

from __future__ import annotations

from tvm import ir

from . import convolution, products, scaling

__all__ = ["LEGALIZATIONS"]

LEGALIZATIONS = {
    "relax.qnn.quantize": scaling.quantize,
    "relax.qnn.dequantize": scaling.dequantize,
    "relax.qnn.requantize": scaling.requantize,
    "relax.qnn.conv2d": convolution.conv2d,
    "relax.qnn.conv2d_transpose": convolution.conv2d_transpose,
    "relax.qnn.dense": products.dense,
    "relax.qnn.batch_matmul": products.batch_matmul,
}
"""From the operator's name to its legalization."""

for _name, _legalize in LEGALIZATIONS.items():
    ir.Op.get(_name).set_attr("FLegalize", _legalize)
