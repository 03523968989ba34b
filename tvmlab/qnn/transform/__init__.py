"""Passes of quantized networks.

Each is a pass of TVM's: ``FakeQuantizationToInteger()(mod)``, or a part of a
`tvm.transform.Sequential`. `tvm.relax.transform.LegalizeOps` makes kernels of the operators.
"""

from .. import rows  # noqa: F401 (fills the table with the quantized operators)
from .fake_quantization import (
    FakeQuantizationToInteger,
    QnnQuantizeConstFold,
    RemoveClipAfterRequantize,
)

__all__ = ["FakeQuantizationToInteger", "QnnQuantizeConstFold", "RemoveClipAfterRequantize"]
