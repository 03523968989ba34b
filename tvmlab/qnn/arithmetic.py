"""The reference of quantized arithmetic: the result of every quantized operator, in NumPy.

The functions have the names and arguments of `tvmlab.qnn.op`, with arrays and numbers instead of
expressions, and compute at once. Legalization must produce the same bits. Tests compare each
function with its origin: Relay's own results, TFLite's reference kernels or ONNX Runtime's
kernels.
"""

from __future__ import annotations

from collections.abc import Callable

from . import op
from .checks import Array
from .fixed_point import fixed_point_multiplier
from .operator import function

__all__ = [*op.__all__, "fixed_point_multiplier"]


def __getattr__(name: str) -> Callable[..., Array]:
    return function(name, "reference", __name__)


def __dir__() -> list[str]:
    return __all__
