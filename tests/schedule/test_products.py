"""Matrix products: the contraction rule takes each, and PyTorch's numbers result."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

import tvmlab
from tests.oracles.models import array
from tests.schedule.convolutions import Conv, convolutions
from tests.schedule.dot import (
    QuantizedBatches,
    QuantizedConv,
    QuantizedDense,
    full,
    quantized_batches,
    quantized_convs,
    quantized_denses,
)
from tests.schedule.kernels import Case, wrong
from tests.short import ALL, examples
from tvmlab import qnn


@dataclass(frozen=True)
class Product(Case):
    kernels = "matmul"
    rule = "Contraction"

    left: tuple[int, ...]
    right: tuple[int, ...]
    constant: bool
    dense: bool  # with a bias and a ReLU behind it

    @property
    def given(self) -> tuple[str, ...]:
        return ("left",) if self.constant else ("left", "right", "bias")

    def contents(self) -> dict[str, np.ndarray]:
        arrays = {"left": array(*self.left), "right": array(*self.right, seed=1)}
        if self.dense:
            arrays["bias"] = array(self.right[-1], seed=2)
        return arrays

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        y = relax.op.matmul(values["left"], values["right"])
        if not self.dense:
            return y
        return relax.op.nn.relu(builder.emit(relax.op.add(builder.emit(y), values["bias"])))

    def reference(self) -> np.ndarray:
        values = self.contents()
        y = values["left"].astype("float64") @ values["right"].astype("float64")
        return np.maximum(y + values["bias"], 0) if self.dense else y


@st.composite
def products(draw: st.DrawFn) -> Product:
    rows, inputs, columns = (draw(st.integers(1, 70)) for _ in range(3))
    batch = draw(st.sampled_from(((), (), (1,), (3,), (2, 3))))
    # Each side has the batch, a part of it, or a one in its place.
    sides = [
        tuple(draw(st.sampled_from((size, size, 1))) for size in batch[draw(st.integers(0, 1)) :])
        for _ in range(2)
    ]
    return Product(
        left=(*sides[0], rows, inputs),
        right=(*sides[1], inputs, columns),
        constant=draw(st.booleans()),
        dense=draw(st.booleans()),
    )


# Modules of 10 operators: compiling one with many costs less than many with one.
EACH = 10


@settings(max_examples=52 if ALL else 6)
@given(convs=st.lists(convolutions(), min_size=EACH, max_size=EACH))
def test_convolutions_equal_pytorchs(convs: list[Conv]) -> None:
    assert not wrong(convs)


@settings(max_examples=examples(8))
@given(convs=st.lists(quantized_convs(), min_size=EACH, max_size=EACH))
def test_quantized_convolutions_are_exact(convs: list[QuantizedConv]) -> None:
    assert not wrong(convs)


@settings(max_examples=examples(8))
@given(denses=st.lists(quantized_denses(), min_size=EACH, max_size=EACH))
def test_quantized_matrix_products_are_exact(denses: list[QuantizedDense]) -> None:
    assert not wrong(denses)


@settings(max_examples=examples(8))
@given(batches=st.lists(quantized_batches(), min_size=EACH, max_size=EACH))
def test_quantized_products_of_batches_are_exact(batches: list[QuantizedBatches]) -> None:
    assert not wrong(batches)


@settings(max_examples=examples(10))
@given(cases=st.lists(products(), min_size=EACH, max_size=EACH))
def test_products_equal_numpys(cases: list[Product]) -> None:
    assert not wrong(cases)


@pytest.mark.parametrize("dtype", ["int8", "float64", "float16"])
def test_products_of_other_dtypes(dtype: str) -> None:
    x = array(9, 21) if dtype != "int8" else array(9, 21) * 30
    x, w = x.astype(dtype), (array(21, 35, seed=1) * (30 if dtype == "int8" else 1)).astype(dtype)
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, dtype))
    out = "int32" if dtype == "int8" else dtype
    with builder.function("main", [data]):
        y = builder.emit(relax.op.matmul(data, relax.const(w), out_dtype=out))
        builder.emit_func_output(y)
    run = tvmlab.compile(builder.get())
    wide = "int64" if dtype == "int8" else "float64"
    expected = x.astype(wide) @ w.astype(wide)
    assert run(x).dtype == out
    tolerance = {"int8": 0, "float64": 1e-13, "float16": 1e-2}[dtype]
    np.testing.assert_allclose(run(x), expected, rtol=tolerance, atol=tolerance * 10)
    assert [kernel.rule for kernel in run.summary().kernels] == ["Contraction"]


@pytest.mark.parametrize("rows", [48, 50])
def test_quantized_sums_are_requantized_in_their_tile(rows: int) -> None:
    """The sums need no pass of their own, with one loop nest for all of it."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((rows, 64), "uint8"))
    one = relax.const(np.float32(1))
    none = relax.const(np.int32(0))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(full("int8", 96, 64))
            sums = builder.emit(qnn.op.dense(x, weight, none, none, one, one))
            made = qnn.op.requantize(sums, one, none, relax.const(np.float32(99)), none)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    run = tvmlab.compile(builder.get(), {"kind": "llvm", "mcpu": "icelake-server", "num-cores": 2})
    (kernel,) = run.summary().kernels
    assert kernel.rule == "Contraction"
    (script,) = (
        func.script()
        for func in run.tir().functions.values()
        if isinstance(func, tirx.PrimFunc) and "contraction" in func.script()
    )
    nests = [line for line in script.splitlines() if re.match(r"    for ", line)]
    assert len(nests) == 1
