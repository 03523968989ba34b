"""A TIR function, by itself or in a module, is loaded, compiled and tuned like a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import IRModule, s_tir, te, tirx
from tvm.script import tirx as T

import tvmlab
from tests.oracles.models import said
from tvmlab.errors import CompileError

RNG = np.random.default_rng(0)
INT = {"int8": "int32"}


def matmul(rows: int | None, dtype: str) -> tirx.PrimFunc:
    """Multiply two matrices; a number of rows that is left out is only known at run time."""
    rows, total = te.var("n") if rows is None else rows, INT.get(dtype, dtype)
    a, b = te.placeholder((rows, 12), dtype, "A"), te.placeholder((12, 20), dtype, "B")
    r = te.reduce_axis((0, 12), "r")
    c = te.compute(
        (rows, 20), lambda i, j: te.sum(a[i, r].astype(total) * b[r, j].astype(total), r), "C"
    )
    return te.create_prim_func([a, c, b])  # the output between the inputs


def scheduled(func: tirx.PrimFunc) -> IRModule:
    """Schedule the product."""
    schedule = s_tir.Schedule(func)
    block = schedule.get_sblock("C")
    i, j, r = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 8])
    schedule.reorder(i, outer, r, inner)
    schedule.parallel(i)
    schedule.vectorize(inner)
    schedule.decompose_reduction(block, r)
    return schedule.mod


@pytest.mark.parametrize("form", [lambda f: f, lambda f: IRModule({"mm": f})])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("rows", [7, None])
def test_the_numbers_are_numpys(form: Callable[[Any], Any], dtype: str, rows: int | None) -> None:
    a, b = ((RNG.standard_normal(shape) * 9).astype(dtype) for shape in ((7, 12), (12, 20)))
    given, total = form(matmul(rows, dtype)), INT.get(dtype, dtype)
    made = tvmlab.compile(given)
    assert "Reduction" in str(made.summary())
    for executable in (made, tvmlab.compile(tvmlab.load(given), schedule=False)):
        wanted = a.astype(total) @ b.astype(total)
        np.testing.assert_allclose(executable(a, B=b), wanted, rtol=1e-3 * (dtype == "float32"))
        assert [output.name for output in executable.signature.outputs] == ["C"]


def test_names_that_come_twice_and_several_outputs() -> None:
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n, m), "int32"), te.placeholder((n * 2,), "int32")
    outer = te.compute((n * 2, m + 1), lambda i, j: x[i // 2, te.min(j, m - 1)] + y[i])
    mod = tvmlab.load(te.create_prim_func([x, y, outer, te.compute((m, n), lambda i, j: x[j, i])]))
    assert [param.name for param in mod["main"].params] == ["placeholder", "placeholder_1"]
    assert tvmlab.load(mod).same_as(mod)
    a, b = RNG.integers(-9, 9, (3, 4), "int32"), RNG.integers(-9, 9, 6, "int32")
    first, second = tvmlab.compile(mod)(a, b)
    padded = np.pad(a.repeat(2, 0), ((0, 0), (0, 1)), mode="edge")
    np.testing.assert_array_equal(first, padded + b[:, None])
    np.testing.assert_array_equal(second, a.T)


def test_it_is_tuned(tmp_path: Path) -> None:
    records = tmp_path / "records.json"
    report = tvmlab.tune(matmul(7, "float32"), records=records, trials=2, progress=False)
    assert "kernel" in str(report)
    a, b = RNG.random((7, 12), "float32"), RNG.random((12, 20), "float32")
    made = tvmlab.compile(matmul(7, "float32"), records=records)
    np.testing.assert_allclose(made(a, b), a @ b, rtol=1e-4)


@T.prim_func(s_tir=True)
def in_place(x: T.Buffer((8,)), y: T.Buffer((8,))):
    for i in range(8):
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            y[v] = y[v] + x[v]


@T.prim_func(s_tir=True)
def inner(x: T.Buffer((8,)), y: T.Buffer((8,))):
    for i in range(6):
        with T.sblock("y"):
            v = T.axis.spatial(8, i + 1)
            y[v] = x[v - 1] + x[v + 1]


@T.prim_func(s_tir=True)
def guarded(x: T.Buffer((8,)), y: T.Buffer((8,))):
    for i in range(8):
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            if x[v] > T.float32(0):
                y[v] = x[v]


@T.prim_func(s_tir=True)
def given_away(x: T.Buffer((8,)), y: T.Buffer((8,)), z: T.Buffer((8,))):
    for i in range(8):
        with T.sblock("z"):
            v = T.axis.spatial(8, i)
            T.evaluate(T.call_extern("int32", "f", T.address_of(y[v])))
            z[v] = x[v] + y[v]


@T.prim_func(s_tir=True)
def beyond_its_init(x: T.Buffer((8, 4)), y: T.Buffer((8,))):
    for i, j in T.grid(8, 4):
        with T.sblock("y"):
            v, r = T.axis.remap("SR", [i, j])
            with T.init():
                y[v] = T.float32(0)
            y[v] = y[(v + 1) % 8] + x[v, r]


@T.prim_func(s_tir=True)
def strided(x: T.Buffer((4, 2), strides=(3, 1)), y: T.Buffer((4, 2))):
    for i, j in T.grid(4, 2):
        with T.sblock("y"):
            v, w = T.axis.remap("SS", [i, j])
            y[v, w] = x[v, w]


@T.prim_func(s_tir=True)
def later(x: T.Buffer((8,)), y: T.Buffer((8,), elem_offset=4)):
    for i in range(8):
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            y[v] = x[v]


X, N = te.placeholder((8,), name="x"), te.var("n")
TWICE = te.placeholder((N * 2,), name="x")
CALLED = te.extern((8,), [X], lambda i, o: tirx.call_packed("f", i[0], o[0]), "y")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (in_place, "may read 'y' before"),
        (inner, "has a schedule, or loops unlike"),
        (scheduled(matmul(7, "float32")), "has a schedule, or loops unlike"),
        (guarded, "a part of 'y' unwritten"),
        (given_away, "passes pointers"),
        (te.create_prim_func([X, CALLED]), "passes pointers"),
        (te.create_prim_func([X, N, te.compute((8,), lambda i: X[i] + N)]), "'n' .* not a buffer"),
        (te.create_prim_func([te.compute((N,), lambda i: i)]), "no input has the size 'n'"),
        (te.create_prim_func([TWICE, te.compute((N,), lambda i: TWICE[i])]), "the size 'n'"),
        (beyond_its_init, "may read 'y' before"),
        (IRModule({"one": inner, "two": guarded}), "no Relax function named main"),
        (strided, "'x' has strides or an offset"),
        (later, "'y' has strides or an offset"),
    ],
)
def test_unknown_outputs_and_strides_are_refused(given: Any, what: str) -> None:
    with pytest.raises(CompileError, match=what) as caught:
        tvmlab.load(given)
    fix = "declare the buffer without" if "strides" in what else "Relax main that calls"
    assert fix in said(caught.value)
