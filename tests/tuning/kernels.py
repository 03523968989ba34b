"""Kernels to measure, good and bad."""

from __future__ import annotations

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import tirx as T

SIZE = 64


def adds(value: float, size: int = SIZE) -> IRModule:
    """A kernel that adds a number to each element of a vector."""
    x = te.placeholder((size,), name="x")
    return module(te.create_prim_func([x, te.compute((size,), lambda i: x[i] + value, name="y")]))


def module(function: tvm.tirx.PrimFunc) -> IRModule:
    """A module of one function."""
    return IRModule({"main": function.with_attr("global_symbol", "main")})


@I.ir_module
class Endless:
    """It never ends where the first number is below 5, and those of the tests are."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        while x[0] < 5.0:
            y[0] = y[0] + 1.0


@I.ir_module
class Outside:
    """It reads some gigabytes beyond its input."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        for i in range(8):
            y[i] = x[i * 200000000]


@I.ir_module
class Aborts:
    """It ends its process."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        y[0] = x[0]
        T.evaluate(T.call_extern("int32", "abort"))


@I.ir_module
class Leaves:
    """It ends its process as if all were well."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        y[0] = x[0]
        T.evaluate(T.call_extern("int32", "exit", 0))


@I.ir_module
class ForDevices:
    """It is for a GPU: it cannot be compiled for a processor."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        for i in T.thread_binding(64, thread="threadIdx.x"):
            y[i] = x[i]


@I.ir_module
class Long:
    """To compile it takes minutes."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        for i in T.unroll(1000000):
            y[i % 64] = x[i % 32] + y[i % 16]


@I.ir_module
class Counts:
    """It copies whole numbers."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "int32"), y: T.Buffer((64,), "int32")):
        for i in range(64):
            with T.sblock("y"):
                place = T.axis.spatial(64, i)
                y[place] = x[place]


@I.ir_module
class CountsHalf:
    """It copies the first half of them."""

    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((64,), "int32"), y: T.Buffer((64,), "int32")):
        for i in range(32):
            with T.sblock("y"):
                place = T.axis.spatial(32, i)
                y[place] = x[place]
