"""The reference of quantized arithmetic: what every quantized operator computes, in NumPy.

The functions have the names and arguments of `tvmlab.qnn.op`, with arrays and numbers for
expressions, and compute at once. They are the yardstick: legalization has to give the same bits,
and each is held against those who defined it, Relay's own results and TFLite's reference kernels.
"""

from .reference.binary import add, concatenate, mul, subtract
from .reference.fixed_point import fixed_point_multiplier, fixed_point_multipliers
from .reference.products import conv2d, dense
from .reference.scaling import dequantize, quantize, requantize, saturate

__all__ = [
    "add",
    "concatenate",
    "conv2d",
    "dense",
    "dequantize",
    "fixed_point_multiplier",
    "fixed_point_multipliers",
    "mul",
    "quantize",
    "requantize",
    "saturate",
    "subtract",
]
