"""Passes of quantized networks.

Each is a pass of TVM's: ``FakeQuantizationToInteger()(mod)``, or a part of a
`tvm.transform.Sequential`.
"""

from .fake_quantization import FakeQuantizationToInteger

__all__ = ["FakeQuantizationToInteger"]
