"""Quantized operators as calls in Relax: Relay's `relay.qnn.op`, with its names and arguments.

Each function makes one call of an operator ``relax.qnn.NAME``, typed, which prints, matches and
transforms like Relax's own.
"""

from .elementwise import (
    abs,
    add,
    concatenate,
    erf,
    exp,
    hardswish,
    leaky_relu,
    log,
    mul,
    rsqrt,
    sigmoid,
    softmax,
    sqrt,
    subtract,
    tanh,
)
from .pooling import avg_pool2d
from .products import batch_matmul, conv2d, conv2d_transpose, dense
from .scaling import dequantize, quantize, requantize

__all__ = [
    "abs",
    "add",
    "avg_pool2d",
    "batch_matmul",
    "concatenate",
    "conv2d",
    "conv2d_transpose",
    "dense",
    "dequantize",
    "erf",
    "exp",
    "hardswish",
    "leaky_relu",
    "log",
    "mul",
    "quantize",
    "requantize",
    "rsqrt",
    "sigmoid",
    "softmax",
    "sqrt",
    "subtract",
    "tanh",
]
