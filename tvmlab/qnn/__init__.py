"""Quantized operators as a Relax dialect.

`tvmlab.qnn.op` builds calls of them; importing this package registers them with TVM.
"""

from . import op
from . import legalize as _legalize  # noqa: F401  registers the legalizations

__all__ = ["op"]
