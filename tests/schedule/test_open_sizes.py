"""Kernels of sizes that are known at run time: scheduled like others, and PyTorch's numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script import tirx as T

import tvmlab
from tests.oracles.models import array
from tvmlab.schedule.apply import RULE, ApplyRules
from tvmlab.schedule.lowered import PIPELINE
from tvmlab.schedule.pipeline import rules

N, M = (tirx.Var(name, "int64") for name in "nm")
#: None, around the vectors and the tiles of all processors, and over a few of them.
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100)
W, B = array(40, 37), array(37, seed=1)
#: Weights that are fetched ahead: of a small product, and of products that all threads share, whose
#: channels fill the last tile, or do not.
SMALL, LARGE, UNEVEN = array(120, 200) / 4, array(300, 512) / 4, array(300, 500) / 4
Made = Callable[..., relax.Expr]


def module(make: Made, *shapes: tuple[Any, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            made = builder.emit_output(make(builder, *inputs))
        builder.emit_func_output(made)
    return builder.get()


def dense(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    y = builder.emit(op.add(builder.emit(op.matmul(x, relax.const(W))), relax.const(B)))
    return op.nn.gelu(y)


def dense_by_torch(x: torch.Tensor) -> torch.Tensor:
    made = x.double() @ torch.from_numpy(W).double() + torch.from_numpy(B).double()
    return torch.nn.functional.gelu(made)


Case = tuple[Made, Callable[..., torch.Tensor], list[tuple[Any, ...]], str]


def by_weights(weights: np.ndarray) -> Case:
    """Multiply an open number of rows by constant weights."""

    def product(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return op.nn.relu(op.matmul(x, relax.const(weights)))

    def by_torch(x: torch.Tensor) -> torch.Tensor:
        return (x.double() @ torch.from_numpy(weights).double()).relu()

    return product, by_torch, [(N, len(weights))], "Contraction"


CASES: dict[str, Case] = {
    "rows": (dense, dense_by_torch, [(N, 40)], "Contraction"),
    "rows of a small product": by_weights(SMALL),
    "rows of many channels": by_weights(LARGE),
    "rows of channels that do not fill the last tile": by_weights(UNEVEN),
    "rows of many channels in batches": (
        lambda b, x: op.matmul(x, b.emit(op.broadcast_to(relax.const(LARGE), [5, 300, 512]))),
        lambda x: x.double() @ torch.from_numpy(LARGE).double(),
        [(5, N, 300)],
        "Contraction",
    ),
    "scores that all threads share": (
        lambda b, x, y: op.matmul(x, b.emit(op.permute_dims(y, [0, 2, 1]))),
        lambda x, y: x.double() @ y.double().transpose(1, 2),
        [(512, N, 64), (512, M, 64)],
        "Contraction",
    ),
    "rows of one batch": (dense, dense_by_torch, [(1, N, 40)], "Contraction"),
    "batches": (dense, dense_by_torch, [(N, 5, 40)], "Contraction"),
    "rows and batches": (dense, dense_by_torch, [(M, N, 40)], "Contraction"),
    "batches behind the rows": (
        lambda b, x: dense(b, b.emit(op.permute_dims(x, [1, 0, 2]))),
        lambda x: dense_by_torch(x.transpose(0, 1)),
        [(N, 5, 40)],
        "Contraction",
    ),
    "rows of all batches": (
        lambda b, x: dense(b, b.emit(op.reshape(x, [N * 5, 40]))),
        lambda x: dense_by_torch(x.reshape(-1, 40)),
        [(N, 5, 40)],
        "Contraction",
    ),
    "a weight for every batch": (
        lambda b, x: op.matmul(x, b.emit(op.broadcast_to(relax.const(W), [5, 40, 37]))),
        lambda x: x.double() @ torch.from_numpy(W).double(),
        [(5, N, 40)],
        "Contraction",
    ),
    "more numbers in a batch than one thread should take": (
        lambda b, x: op.permute_dims(x, [2, 0, 1, 3]),
        lambda x: x.permute(2, 0, 1, 3),
        [(N, 12, 50, 64)],
        "ElementWise",
    ),
    "scores": (
        lambda b, x, y: op.matmul(x, b.emit(op.permute_dims(y, [0, 2, 1]))),
        lambda x, y: x.double() @ y.double().transpose(1, 2),
        [(3, N, 24), (3, M, 24)],
        "Contraction",
    ),
    "values by scores": (
        lambda b, x, y: op.matmul(x, y),
        lambda x, y: x.double() @ y.double(),
        [(3, N, M), (3, M, 24)],
        "Contraction",
    ),
    "one matrix by itself": (
        lambda b, x: op.matmul(x, b.emit(op.permute_dims(x, [1, 0]))),
        lambda x: x.double() @ x.double().T,
        [(N, 16)],
        "Contraction",
    ),
    "a matrix by one with open inputs": (
        lambda b, x, y: op.matmul(x, y),
        lambda x, y: x.double() @ y.double(),
        [(N, M), (M, 16)],
        "Contraction",
    ),
    "softmax": (
        lambda b, x: op.nn.softmax(x, -1),
        lambda x: x.double().softmax(-1),
        [(3, N, M)],
        "Rows",
    ),
    "softmax of some rows": (
        lambda b, x, y: op.where(
            b.emit(op.astype(y, "bool")), relax.const(0.0), b.emit(op.nn.softmax(x, -1))
        ),
        lambda x, y: torch.where(y.bool(), 0.0, x.double().softmax(-1)),
        [(1, 12, N, N), (1, 12, N, 1)],
        "Rows",
    ),
    "element-wise": (
        lambda b, x, y: op.multiply(b.emit(op.exp(x)), y),
        lambda x, y: x.double().exp() * y.double(),
        [(3, N), (3, N)],
        "ElementWise",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_size_has_the_right_result(name: str) -> None:
    make, theirs, shapes, rule = CASES[name]
    run = tvmlab.compile(module(make, *shapes))
    rules = [kernel.rule for kernel in run.summary().kernels]
    assert rule in rules
    assert "" not in rules
    for size in SIZES:
        sizes = {N: size, M: 2 * size + 1}
        inputs = [
            array(*(sizes.get(n, n) if isinstance(n, tirx.Var) else n for n in shape), seed=i)
            for i, shape in enumerate(shapes)
        ]
        expected = theirs(*map(torch.from_numpy, inputs)).numpy()
        limit = 2e-6 * np.abs(expected).max(initial=1)
        np.testing.assert_allclose(run(*inputs), expected, rtol=1e-5, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("rows", [7, 8, 13, 14])
def test_known_numbers_of_rows_with_a_small_rest(rows: int, dtype: str) -> None:
    x, w = ((array(*shape, seed=1) * 9).astype(dtype) for shape in ((rows, 40), (40, 37)))
    builder, var = relax.BlockBuilder(), relax.Var("x", relax.TensorType(x.shape, dtype))
    with builder.function("main", [var]):
        with builder.dataflow():
            made = builder.emit_output(op.matmul(var, relax.const(w, dtype)))
        builder.emit_func_output(made)
    expected = x.astype("float64") @ w
    np.testing.assert_allclose(tvmlab.compile(builder.get())(x), expected, rtol=1e-5, atol=1e-4)


def test_a_number_that_is_no_size_divides_as_it_is() -> None:
    """Only sizes are never negative."""

    @T.prim_func(s_tir=True)
    def divide(x: T.handle, by: T.int64, y: T.handle) -> None:
        n = T.int64()
        X = T.match_buffer(x, (n,), "int64")
        Y = T.match_buffer(y, (n,), "int64")
        for i in range(n):
            with T.sblock("divide"):
                v = T.axis.spatial(n, i)
                Y[v] = X[v] // by

    run = tvm.tirx.build(divide, target="llvm", pipeline=PIPELINE)
    x, y = (tvm.runtime.tensor(np.arange(4) + add) for add in (5, 0))
    run(x, -3, y)
    assert np.array_equal(y.numpy(), np.arange(5, 9) // -3)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_multiple_of_a_number_becomes_a_size_with_a_name(dtype: str) -> None:
    """The size occurs in both orders; the number occurs by itself, too, and is a parameter."""
    n = te.var("n", dtype)
    x = te.placeholder((n * 3, 8), name="x")
    y = te.compute((3 * n, 8), lambda i, j: x[i, j] * 2 + n.astype("float32"), name="y")
    with tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}):
        mod = ApplyRules(rules())(tvm.IRModule({"main": te.create_prim_func([x, y, n])}))
    made = mod["main"]
    assert made.attrs[RULE] == "ElementWise"
    sizes = {str(param.shape[0]) for param in made.params if hasattr(param, "shape")}
    assert sizes == {"rows"}
    data, result = (tvm.runtime.tensor(array(12, 8, seed=seed)) for seed in (1, 2))
    tvm.compile(mod, "llvm")["main"](data, result, 4)
    np.testing.assert_array_equal(result.numpy(), data.numpy() * 2 + 4)


def script_of_the_product() -> str:
    run = tvmlab.compile(module(dense, (N, 40)), {"kind": "llvm", "mcpu": "x86-64-v3"})
    functions = [one for one in run.tir().functions.values() if isinstance(one, tirx.PrimFunc)]
    (script,) = (one.script() for one in functions if "contraction" in one.script())
    return script


def test_a_row_or_two_are_summed_in_as_many_vectors_as_larger_tiles() -> None:
    script = script_of_the_product()
    parts = re.findall(r"contraction_tail.* = .*, T.int64\((\d+)\), T.int64\(48\)\)", script)
    assert sorted(map(int, parts)) == [1, 1, 1, 1, 1, 1, 2, 2, 4, 4]  # in parallel, and alone


def test_a_few_rows_are_computed_in_tiles_of_twice_the_channels() -> None:
    make, _, shapes, _ = CASES["rows of many channels"]
    target = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
    run = tvmlab.compile(module(make, *shapes), target)
    few, others = str(run.tir()).split("if n <= T.int64(2):")[1].split("\n        else:\n")
    vectors = r"i2_1_0\w* in T.unroll\(T.int64\((\d)\)\)"
    assert set(re.findall(vectors, few)) == {"4"}
    assert set(re.findall(vectors, others)) == {"2"}


def test_a_few_rows_of_integers() -> None:
    w = (LARGE * 40).round().astype("int8")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((N, 300), "uint8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(op.matmul(x, relax.const(w), out_dtype="int32"))
        builder.emit_func_output(made)
    run = tvmlab.compile(builder.get())
    for size in SIZES:
        rows = np.abs(array(size, 300, seed=size) * 40).astype("uint8")
        assert np.array_equal(run(rows), rows.astype("int32") @ w.astype("int32"))


def test_scores_of_narrow_vectors_have_a_schedule() -> None:
    """Their channels are open, too, and a tile has two vectors."""
    make, _, shapes, _ = CASES["scores that all threads share"]
    run = tvmlab.compile(module(make, *shapes), {"kind": "llvm", "mcpu": "x86-64-v3"})
    assert "Contraction" in [kernel.rule for kernel in run.summary().kernels]


def test_the_last_rows_are_computed_without_conditions() -> None:
    """One tile for each number of rows, all with polynomials instead of the C library's erf."""
    script = script_of_the_product()
    assert "T.erf" not in script
    tiles = set(map(int, _rows_of(script)))
    assert tiles == set(range(1, max(tiles) + 1)) > {1, 2}


def _rows_of(script: str) -> list[str]:
    """List the extents of the loops that set a tile's sums to zero."""
    lines = script.splitlines()
    loops = [line for line in lines if "i0_1_init in T.unroll(" in line]
    return [line.split("T.unroll(T.int64(")[1].split(")")[0] for line in loops]


def test_views_between_open_sizes_copy_nothing() -> None:
    def make(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        heads = b.emit(op.reshape(x, [1, N, 4, 8]))
        turned = b.emit(op.permute_dims(heads, [0, 2, 1, 3]))
        shares = b.emit(op.nn.softmax(turned, -1))
        return op.nn.softmax(b.emit(op.reshape(shares, [4, N, 8])), -1)

    run = tvmlab.compile(module(make, (1, N, 32)))
    x = array(1, 7, 32)
    expected = torch.from_numpy(x).reshape(1, 7, 4, 8).transpose(1, 2).softmax(-1)[0].softmax(-1)
    np.testing.assert_allclose(run(x), expected, rtol=1e-5)
    called = [row.name for row in run.profile(x).rows]
    assert not [name for name in called if name.startswith("reshape")]


def test_each_shape_is_made_once() -> None:
    def chain(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        for size in (40, 37, 40, 37):
            w = relax.const(array(int(x.ty.shape[-1]), size))
            x = builder.emit(op.matmul(x, w))
        return x

    run = tvmlab.compile(module(chain, (N, 40)))
    text = run.vm_executable.as_text()
    made = re.findall(r"call\s+vm\.builtin\.make_shape\s+in: (.*?)\s+dst", text)
    assert len(made) > 1
    assert len(made) == len(set(made))
    for rows in (1, 3, 20):
        x = array(rows, 40)
        expected = x.astype("float64")
        for size in (40, 37, 40, 37):
            expected = expected @ array(expected.shape[1], size)
        np.testing.assert_allclose(run(x), expected, rtol=1e-3, atol=1e-3)


def test_weights_are_fetched_ahead_for_an_open_number_of_images() -> None:
    weight = array(256, 256, 3, 3)

    def convolve(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return op.nn.conv2d(x, relax.const(weight), padding=1)

    run = tvmlab.compile(module(convolve, (N, 256, 7, 7)))
    assert "llvm.prefetch" in run.tir().script()
    for images in (1, 3):
        x = array(images, 256, 7, 7)
        expected = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, weight)), padding=1)
        largest = float(expected.abs().max())
        np.testing.assert_allclose(run(x), expected, atol=5e-5 * largest)


@pytest.mark.parametrize("step", ["fuse", "parallel", "tile", True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((N,), 0), ((N, 8), 0), ((8, N), 1), ((4, 8, N), 2), ((3, N, 5, 7), (1, 3)), ((N, N), (0, 1))],
)
def test_a_sum_of_no_numbers_is_zero(
    shape: tuple[Any, ...], axes: tuple[int, ...] | int, step: bool | str
) -> None:
    def total(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return op.sum(x, axes)

    run = tvmlab.compile(module(total, shape), schedule=step)
    for size in (300, 0, 300, 0):  # the memory holds other numbers before
        x = np.full([size if one is N else one for one in shape], 7, "float32")
        np.testing.assert_allclose(run(x), x.sum(axes), rtol=1e-5)
