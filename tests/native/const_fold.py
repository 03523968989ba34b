"""Modules with quantizes of constants, and the pass `QnnQuantizeConstFold` in both languages."""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvmlab import native
from tvmlab.ir import graph
from tvmlab.qnn import op
from tvmlab.qnn.transform import QnnQuantizeConstFold

DTYPES = ("int8", "uint8", "int16", "int32")
FOUR = [1.0, -2.0, 3.25, 0.5]


def in_python(mod):
    """Fold with the same pass, written in Python."""
    return QnnQuantizeConstFold()(mod)


def form(function):
    """Give a function without what the two may differ in: aliases, dead bindings, their order."""
    return graph.from_graph(function.params, graph.inline(function.body))


def equal(a, b):
    return tvm_ffi.structural_equal(a, b, map_free_vars=True)


def fold(mod):
    return native.qnn_quantize_const_fold()(mod)


def array(value, dtype="float32"):
    return relax.const(np.asarray(value, dtype))


def quantize(data, scale=0.5, zero=0, **attributes):
    return op.quantize(array(data), array(scale), array(zero, "int32"), **attributes)


def dequantize(data):
    return op.dequantize(data, array(0.5), array(0, "int32"))


def module(build, *, dataflow=True):
    """Make a module of one function of x; `build` gets the builder and x, and gives the result."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        if dataflow:
            with builder.dataflow():
                result = builder.emit_output(build(builder, x))
        else:
            result = builder.emit(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def values(mod):
    """List what is bound in main."""
    return [one.value for block in mod["main"].body.blocks for one in block.bindings]


def quantizes(mod):
    """Count the quantizes that are left."""
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and expr.op == tvm.ir.Op.get("relax.qnn.quantize"):
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return len(found)


def chain(count, weight):
    """Make a module that adds `count` dequantized weights to x, three operators each."""

    def build(builder, x):
        for index in range(count):
            x = builder.emit(relax.op.add(x, builder.emit(dequantize(weight(builder, index)))))
        return x

    return module(build)


def numbers(index):
    return np.float32([index, -index, 0.25 * index, 1])
