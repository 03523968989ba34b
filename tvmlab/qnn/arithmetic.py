"""The reference of quantized arithmetic: what every quantized operator computes, in NumPy.

The functions have the names and arguments of `tvmlab.qnn.op`, with arrays and numbers for
expressions, and compute at once. They are the yardstick: legalization has to give the same bits,
and tests compare each with those who defined it: Relay's own results, TFLite's reference kernels
and ONNX Runtime's kernels.
"""

from .reference.binary import add, concatenate, mul, subtract
from .reference.bounds import largest_sum, sum_range
from .reference.fixed_point import fixed_point_multiplier, fixed_point_multipliers
from .reference.pooling import avg_pool2d
from .reference.products import batch_matmul, conv2d, conv2d_transpose, dense
from .reference.scaling import dequantize, quantize, requantize, saturate
from .reference.unary import (
    abs,
    erf,
    exp,
    hardswish,
    leaky_relu,
    log,
    lookup_table,
    rsqrt,
    sigmoid,
    softmax,
    sqrt,
    tanh,
)

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
    "fixed_point_multiplier",
    "fixed_point_multipliers",
    "hardswish",
    "largest_sum",
    "leaky_relu",
    "log",
    "lookup_table",
    "mul",
    "quantize",
    "requantize",
    "rsqrt",
    "saturate",
    "sigmoid",
    "softmax",
    "sqrt",
    "subtract",
    "sum_range",
    "tanh",
]
