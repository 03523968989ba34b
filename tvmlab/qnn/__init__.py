"""Quantized operators as a Relax dialect.

`tvmlab.qnn.op` builds calls of them; importing this package registers them with TVM: their types,
their legalizations, and how a change of layout passes through them.
"""

from . import op, layout, legalize  # isort: skip  (what the operators carry comes after they are)

__all__ = ["layout", "legalize", "op"]
