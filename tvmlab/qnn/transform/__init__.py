"""Passes of quantized networks.

Each pass is a TVM pass: call ``FakeQuantizationToInteger()(mod)``, or put it into a
`tvm.transform.Sequential`. `tvm.relax.transform.LegalizeOps` lowers the operators to kernels.
"""

from .. import rows  # noqa: F401 (fills the table with the quantized operators)
from .fake_quantization import (
    FakeQuantizationToInteger,
    QnnQuantizeConstFold,
    RemoveClipAfterRequantize,
)

__all__ = ["FakeQuantizationToInteger", "QnnQuantizeConstFold", "RemoveClipAfterRequantize"]
