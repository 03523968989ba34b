"""Quantized operators as calls in Relax: Relay's `relay.qnn.op`, with its names and arguments.

Each function makes one typed call of an operator ``relax.qnn.NAME``, which TVM prints, matches
and transforms like Relax's own operators. Tensors, scales and zero points are Relax expressions.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from . import binary, pooling, products, rescale, unary  # noqa: F401 (they define operators)
from .operator import OPERATORS, function

__all__ = sorted(OPERATORS)


def __getattr__(name: str) -> Callable[..., relax.Call]:
    return function(name, "call", __name__)


def __dir__() -> list[str]:
    return __all__
