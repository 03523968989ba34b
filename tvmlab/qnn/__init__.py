"""Quantized operators as a Relax dialect.

`tvmlab.qnn.op` builds calls of them; importing this package registers them with TVM.
"""

from . import op

__all__ = ["op"]
