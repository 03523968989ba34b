"""Passes of quantized networks.

Each is a pass of TVM's: ``FakeQuantizationToInteger()(mod)``, or a part of a
`tvm.transform.Sequential`.
"""

from .. import rows  # noqa: F401 (fills the table with the quantized operators)
from .fake_quantization import FakeQuantizationToInteger
from .integer_passes import Legalize, QnnQuantizeConstFold, RemoveClipAfterRequantize

__all__ = [
    "FakeQuantizationToInteger",
    "Legalize",
    "QnnQuantizeConstFold",
    "RemoveClipAfterRequantize",
]
