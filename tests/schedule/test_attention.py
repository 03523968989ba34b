"""Attention in one loop nest: PyTorch's numbers, with every form of mask, and of every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op

import tvmlab
from tests.oracles.models import array

INFINITY = float("inf")
Scores = Callable[..., relax.Expr]
B, M, N = (tirx.Var(name, "int64") for name in "bmn")


def attention(
    shapes: list[tuple[Any, ...]], scores: Scores | None = None, *, also: bool = False
) -> tvm.IRModule:
    """Build ``softmax(f(q k)) v`` from tensors of these shapes, of which keys are transposed."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    q, k, v, *others = inputs
    with builder.function("main", inputs):
        with builder.dataflow():
            rank = k.ty.ndim
            turned = builder.emit(op.permute_dims(k, [*range(rank - 2), rank - 1, rank - 2]))
            made = builder.emit(op.matmul(q, turned))
            if scores is not None:
                made = builder.emit(scores(builder, made, *others))
            parts = builder.emit(op.nn.softmax(made))
            result: relax.Expr = op.matmul(parts, v)
            if also:
                result = relax.Tuple([builder.emit(result), made])
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def expected(q: Any, k: Any, v: Any, bias: Any = 0.0, scale: float = 1.0) -> np.ndarray:
    scores = torch.from_numpy(q).double() @ torch.from_numpy(k).double().mT * scale
    scores = scores + torch.as_tensor(bias)
    return (scores.softmax(-1) @ torch.from_numpy(v).double()).numpy()


def rules(run: tvmlab.Executable) -> list[str | None]:
    return [kernel.rule for kernel in run.summary().kernels]


def biased(builder: relax.BlockBuilder, scores: relax.Expr, bias: relax.Expr) -> relax.Expr:
    small = builder.emit(op.multiply(scores, relax.const(0.3, "float32")))
    return op.add(bias, small)


@given(
    outer=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    queries=st.integers(1, 40),
    keys=st.integers(1, 70),
    inner=st.integers(1, 20),
    numbers=st.integers(1, 40),
    rows=st.booleans(),
)
@settings(max_examples=12)
def test_known_sizes(
    outer: tuple[int, ...], queries: int, keys: int, inner: int, numbers: int, rows: bool
) -> None:
    bias = (queries, keys) if rows else (1, keys)
    sizes = [(queries, inner), (keys, inner), (keys, numbers)]
    shapes = [*((*outer, *size) for size in sizes), bias]
    run = tvmlab.compile(attention(shapes, biased))
    assert "Attention" in rules(run)
    q, k, v, b = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    np.testing.assert_allclose(run(q, k, v, b), expected(q, k, v, b, 0.3), rtol=0, atol=1e-5)


OPEN = {
    "queries and keys": ((2, N, 12), (2, N, 12), (2, N, 20), (N, N)),
    "queries": ((2, M, 12), (2, 37, 12), (2, 37, 20), (1, 37)),
    "keys": ((2, 5, 12), (2, N, 12), (2, N, 20), (1, N)),
    "each": ((B, 2, M, 12), (B, 2, N, 12), (B, 2, N, 20), (M, N)),
}


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("form", OPEN)
def test_open_sizes(form: str, plain: bool) -> None:
    declared = [*OPEN[form]][: 3 if plain else 4]
    run = tvmlab.compile(attention(declared, None if plain else biased))
    assert "Attention" in rules(run)
    for size in (0, 1, 2, 7, 8, 9, 16, 31, 33, 64, 70):
        values = {B: size % 3, M: size // 2 if form == "each" else size, N: size}
        shapes = [[values.get(one, one) for one in shape] for shape in declared]
        inputs = [array(*shape, seed=i) for i, shape in enumerate(shapes)]
        wanted = expected(*inputs) if plain else expected(*inputs, 0.3)
        np.testing.assert_allclose(run(*inputs), wanted, rtol=0, atol=1e-5, err_msg=f"{size}")


class Masked(torch.nn.Module):
    """PyTorch's attention with a mask, in which the last query has no key."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.parametrize("sizes", [(1, 2, 21, 16), (2, 3, 40, 8)])
def test_queries_without_a_key_give_zero(sizes: tuple[int, ...]) -> None:
    x, mask = torch.from_numpy(array(*sizes)), torch.ones(sizes[2], sizes[2]).tril().bool()
    mask[-1] = False
    run = tvmlab.compile(tvmlab.load(torch.export.export(Masked(), (x, mask))))
    assert "Attention" in rules(run)
    found = np.asarray(run(x.numpy(), mask.numpy()))
    wanted = Masked()(x, mask).numpy()
    assert not wanted[..., -1, :].any()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    x[0, 0, 3, 1] = float("nan")
    np.testing.assert_array_equal(
        np.isnan(run(x.numpy(), mask.numpy())), np.isnan(Masked()(x, mask).numpy())
    )


def guarded(builder: relax.BlockBuilder, shapes: list[tuple[int, ...]]) -> tvm.IRModule:
    """Build attention as PyTorch's exporter to ONNX writes it: results that are NaN become zero."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    q, k, v, bias = inputs
    with builder.function("main", inputs):
        with builder.dataflow():
            scores = builder.emit(op.add(builder.emit(op.matmul(q, k)), bias))
            parts = builder.emit(op.nn.softmax(scores))
            unknown = builder.emit(op.isnan(parts))
            parts = builder.emit(op.where(unknown, relax.const(0.0, "float32"), parts))
            made = builder.emit_output(op.matmul(parts, v))
        builder.emit_func_output(made)
    return builder.get()


def test_results_that_are_no_numbers_become_zero() -> None:
    shapes = [(2, 9, 8), (2, 8, 11), (2, 11, 5), (9, 11)]
    run = tvmlab.compile(guarded(relax.BlockBuilder(), shapes))
    assert "Attention" in rules(run)
    q, k, v, bias = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    bias[2], bias[3, 4], bias[4, 5] = -INFINITY, float("nan"), INFINITY
    wanted = expected(q, k.transpose(0, 2, 1), v, bias)
    assert np.isnan(wanted[:, 2:5]).all()
    wanted[:, 2:5] = 0
    np.testing.assert_allclose(run(q, k, v, bias), wanted, rtol=0, atol=1e-5)
    v[0, 1, 2] = float("nan")  # zero times this is not a number either
    assert np.isnan(run(q, k, v, bias)[0, :, 2]).all()


def test_without_a_guard_a_query_without_a_key_is_undefined() -> None:
    shapes = [(9, 8), (11, 8), (11, 5), (9, 11)]
    run = tvmlab.compile(attention([*shapes], biased))
    assert "Attention" in rules(run)
    q, k, v, bias = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    bias[2], bias[3, :5] = -INFINITY, -INFINITY
    wanted = expected(q, k, v, bias, 0.3)
    assert np.isnan(wanted[2]).all()
    np.testing.assert_allclose(run(q, k, v, bias), wanted, rtol=0, atol=1e-5)


def chosen(builder: relax.BlockBuilder, scores: relax.Expr, mask: relax.Expr) -> relax.Expr:
    """Soften the scores as Gemma does, and choose them where a mask is positive."""
    soft = builder.emit(op.tanh(builder.emit(op.divide(scores, relax.const(5.0, "float32")))))
    allowed = builder.emit(op.greater(mask, relax.const(0.0, "float32")))
    return op.where(allowed, soft, relax.const(-1e9, "float32"))


@pytest.mark.parametrize("queries", [18, 19, 49, N])
def test_a_mask_can_choose(queries: Any) -> None:
    run = tvmlab.compile(
        attention([(3, queries, 8), (3, 29, 8), (3, 29, 5), (queries, 29)], chosen)
    )
    assert "Attention" in rules(run)
    for count in (0, 1, 23) if queries is N else (queries,):
        q, k, v, mask = array(3, count, 8), array(3, 29, 8), array(3, 29, 5), array(count, 29)
        scores = np.tanh(q.astype("float64") @ k.transpose(0, 2, 1).astype("float64") / 5)
        parts = torch.from_numpy(np.where(mask > 0, scores, -1e9)).softmax(-1).numpy()
        np.testing.assert_allclose(run(q, k, v, mask), parts @ v, rtol=0, atol=1e-5)


def in_windows(builder: relax.BlockBuilder, scores: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """Add a bias for each window, as Swin does, between two reshapes."""
    apart = builder.emit(op.reshape(scores, [2, 3, 2, 9, 9]))
    return op.reshape(builder.emit(op.subtract(bias, apart)), [6, 2, 9, 9])


def test_windows_have_masks_of_their_own() -> None:
    shapes = [(6, 2, 9, 4), (6, 2, 9, 4), (6, 2, 9, 7), (1, 3, 1, 9, 9)]
    run = tvmlab.compile(attention([*shapes], in_windows))
    assert "Attention" in rules(run)
    q, k, v, bias = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    whole = np.broadcast_to(bias, (2, 3, 2, 9, 9)).reshape(6, 2, 9, 9)
    np.testing.assert_allclose(run(q, k, v, bias), expected(-q, k, v, whole), rtol=0, atol=1e-5)


OTHERS: dict[str, tuple[list[tuple[Any, ...]], Scores | None]] = {
    "keys that batches share": ([(4, 9, 8), (1, 11, 8), (4, 11, 5)], None),
    "values that batches share": ([(4, 9, 8), (4, 11, 8), (11, 5)], None),
    "an open number per key": ([(2, 9, N), (2, 11, N), (2, 11, 5)], None),
    "an open number per value": ([(2, 9, 8), (2, 11, 8), (2, 11, N)], None),
    "a bias that adds batches": ([(1, 9, 8), (1, 11, 8), (4, 11, 5), (4, 9, 11)], biased),
}


@pytest.mark.parametrize("form", OTHERS)
def test_other_forms_stay_apart(form: str) -> None:
    declared, scores = OTHERS[form]
    run = tvmlab.compile(attention(declared, scores))
    assert "Attention" not in rules(run)
    shapes = [[6 if one is N else one for one in shape] for shape in declared]
    inputs = [array(*shape, seed=i) for i, shape in enumerate(shapes)]
    wanted = expected(*inputs, *([0.3] if scores else []))
    np.testing.assert_allclose(run(*inputs), wanted, rtol=0, atol=1e-5)


class Guarded(torch.nn.Module):
    """Rows whose scores all equal a number give zero."""

    def __init__(self, number: float, axis: int) -> None:
        super().__init__()
        self.number, self.axis = number, axis

    def forward(self, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT + bias
        none = (scores == self.number).all(self.axis, keepdim=True)
        return torch.where(none, 0.0, scores.softmax(-1)) @ k


@pytest.mark.parametrize(
    ("number", "axis", "rule"),
    [(-INFINITY, -1, True), (-1e9, -1, False), (-INFINITY, -2, False)],
)
def test_a_guard_is_recognized_by_its_number_and_axis(number: float, axis: int, rule: bool) -> None:
    module = Guarded(number, axis)
    q, k, bias = (torch.from_numpy(array(*shape)) for shape in ((2, 9, 8), (2, 11, 8), (9, 11)))
    bias[3], bias[:, 4] = number, number
    q[:, 3] *= 0
    run = tvmlab.compile(tvmlab.load(torch.export.export(module, (q, k, bias))))
    assert ("Attention" in rules(run)) == rule
    inputs = [one.numpy() for one in (q, k, bias)]
    np.testing.assert_allclose(run(*inputs), module(q, k, bias), rtol=0, atol=1e-5)


def test_scores_that_are_used_elsewhere_are_computed_once() -> None:
    shapes = [(9, 8), (11, 8), (11, 5), (9, 11)]
    run = tvmlab.compile(attention([*shapes], biased, also=True))
    assert "Attention" not in rules(run)
    q, k, v, bias = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    found, scores = run(q, k, v, bias)
    np.testing.assert_allclose(found, expected(q, k, v, bias, 0.3), rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores, q @ k.T * 0.3 + bias, rtol=0, atol=1e-5)


def test_the_scores_of_a_long_sequence_are_not_stored() -> None:
    """The virtual machine allocates no tensor of all scores."""
    shapes = [(1, 8, 1024, 16)] * 3
    run = tvmlab.compile(attention([*shapes]))
    q, k, v = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    np.testing.assert_allclose(run(q, k, v), expected(q, k, v), rtol=0, atol=1e-5)
    largest = max(kernel.bytes for kernel in run.profile(q, k, v).rows if kernel.bytes)
    assert largest < 8 * 1024 * 1024 * 4


def test_keys_of_two_parts_are_all_copied() -> None:
    """A concatenation is a condition in the copy of the keys, like the padding."""
    builder, rng = relax.BlockBuilder(), np.random.default_rng(0)
    shapes = {"q": (1, 2, 5, 16), "k1": (1, 2, 64, 16), "k2": (1, 2, 64, 16), "v": (1, 2, 128, 16)}
    given = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    q, first, second, v = given
    with builder.function("main", given):
        with builder.dataflow():
            keys = builder.emit(op.concat([first, second], 2))
            scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(keys, [0, 1, 3, 2]))))
            scores = builder.emit(op.multiply(scores, relax.const(0.25, "float32")))
            made = builder.emit_output(op.matmul(builder.emit(op.nn.softmax(scores, -1)), v))
        builder.emit_func_output(made)
    built = tvmlab.compile(builder.get())
    assert "Attention" in {kernel.rule for kernel in built.summary().kernels}
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes.values()]
    query, one, other, value = (torch.from_numpy(array).double() for array in arrays)
    keys = torch.cat([one, other], 2)
    wanted = torch.softmax(query @ keys.transpose(2, 3) * 0.25, -1) @ value
    np.testing.assert_allclose(built(*arrays), wanted.numpy(), atol=1e-5)
