"""Graphs and patterns that the tests of Relay's pattern language have in common."""

from __future__ import annotations

import tvm_ffi
from tvm import relax

import tvmlab.ir.operators  # noqa: F401 (fills the operator table)
from tvmlab.ir import graph, table
from tvmlab.ir.patterns import is_constant, is_op, wildcard

ELEMENTWISE, BROADCAST = 0, 1


def call(name, *operands, **given):
    """Make a call of a Relay operator from its row."""
    row = table.find(name)
    return graph.typed(row.to_relax(list(operands), table.complete_attributes(row, given)))


def var(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def image():
    return var("x", 1, 3, 12, 12), var("w", 3, 3, 3, 3), var("b", 3)


def conv(x, w, **attributes):
    return call("nn.conv2d", x, w, **attributes)


def relu(x):
    return call("nn.relu", x)


def conv_bias_relu(x, w, b):
    return relu(call("nn.bias_add", conv(x, w), b))


def conv_pattern():
    return is_op("nn.conv2d")(wildcard(), wildcard())


def equal(a, b):
    return tvm_ffi.structural_equal(a, b, map_free_vars=True)


def elementwise():
    return wildcard().has_attr({"TOpPattern": ELEMENTWISE})(wildcard())


def leaky(x):
    return call("nn.leaky_relu", x, alpha=0.0)


def diamond(x, w):
    one = conv(x, w)
    return call("add", relu(relu(one)), leaky(one))


def nested(x, w):
    one = conv(x, w)
    up = relu(one)
    return call("add", call("tanh", call("add", up, up)), leaky(one))


def quantized_convolution():
    """The customer's backend's pattern: an optional pad, a convolution, a bias, a requantize."""
    padded = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    product = is_op("qnn.conv2d")(padded, *[is_constant() for _ in range(5)])
    biased = is_op("nn.bias_add")(product, is_constant())
    return is_op("qnn.requantize")(biased, *[is_constant() for _ in range(4)])
