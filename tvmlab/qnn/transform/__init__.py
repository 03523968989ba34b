"""Passes of quantized networks.

Each is a pass of TVM's: ``FakeQuantizationToInteger()(mod)``, or a part of a
`tvm.transform.Sequential`.
"""

from .. import rows  # noqa: F401 (fills the table with the quantized operators)
from .fake_quantization import FakeQuantizationToInteger
from .legalize import Legalize
from .quantize_const_fold import QnnQuantizeConstFold
from .remove_clip import RemoveClipAfterRequantize

__all__ = [
    "FakeQuantizationToInteger",
    "Legalize",
    "QnnQuantizeConstFold",
    "RemoveClipAfterRequantize",
]
