"""Integer tensors that depend on sizes alone: one loop nest, with PyTorch's or NumPy's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.indices.modules import Program, exported
from tvmlab.errors import OutOfRangeError
from tvmlab.indices.formulas import FoldFormulas

SIZES = (0, 1, 2, 5, 16)


def causal(x: torch.Tensor) -> torch.Tensor:
    """Return the mask of packed sequences, as transformers' models compute it."""
    row = torch.arange(x.shape[0])[None]
    before = torch.full((1, 1), -1)
    packed = (torch.diff(row, prepend=before, dim=-1) != 1).cumsum(-1)
    query, head = row[0][:, None], torch.zeros(1, dtype=torch.int64)
    mask = row[0] <= query
    same = packed[head, query] == packed[head, row[0]]
    return torch.where(mask & same, 0.0, -1.0) + x.sum()


def kernels(mod: tvm.ir.IRModule) -> list[str]:
    """List the operators, and the loop nests, that are left of a module."""
    mod = relax.transform.DeadCodeElimination()(FoldFormulas()(mod))
    bindings = [one for block in mod["main"].body.blocks for one in block.bindings]
    calls = [one.value for one in bindings if isinstance(one.value, relax.Call)]
    names = [str(call.op.name) for call in calls]
    return [
        str(call.args[0].name_hint) if name == "relax.call_tir" else name
        for call, name in zip(calls, names, strict=True)
    ]


def test_a_mask_is_one_loop_nest() -> None:
    n = torch.export.Dim("n", min=2, max=64)
    mod = exported(Program(causal), np.ones(7, "float32"), dynamic_shapes=(({0: n},),))
    assert kernels(mod) == ["formula", "relax.where", "relax.sum", "relax.add"]
    run = tvmlab.compile(mod)
    for size in (2, 5, 64):
        x = np.ones(size, "float32")
        assert np.array_equal(run(x), causal(torch.from_numpy(x)).numpy())


def test_an_index_that_could_be_outside_is_checked() -> None:
    def before(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[0]) - 3
        return torch.arange(9)[places.clamp(min=-9)] * 2 + x

    n = torch.export.Dim("n", min=2, max=64)
    mod = exported(Program(before), np.ones(7, "int64"), dynamic_shapes=(({0: n},),))
    run = tvmlab.compile(mod)
    x = np.ones(12, "int64")
    assert np.array_equal(run(x), before(torch.from_numpy(x)).numpy())
    with pytest.raises(OutOfRangeError, match="from -9 to 8"):
        run(np.ones(13, "int64"))


def module(make: Callable[..., relax.Expr], *shapes: Sequence[Any]) -> tvm.ir.IRModule:
    """Return a module of integer inputs; `make` gets a builder and the inputs."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var("x", relax.TensorType(shape, "int64")) for shape in shapes]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(make(builder, *inputs))
        builder.emit_func_output(result)
    return builder.get()


def number(value: int) -> relax.Expr:
    return relax.const(value, "int64")


def positions(builder: relax.BlockBuilder, first: Any, last: Any) -> relax.Expr:
    return builder.emit(op.arange(first, last, 1, "int64"))


N, M = (tvm.tirx.Var(name, "int64") for name in "nm")


def test_a_mask_of_tokens_after_others() -> None:
    def mask(builder: relax.BlockBuilder, *_: relax.Expr) -> relax.Expr:
        rows = builder.emit(op.expand_dims(positions(builder, M, M + N), 1))
        return op.less_equal(builder.emit(op.expand_dims(positions(builder, 0, M + N), 0)), rows)

    mod = module(mask, (N,), (M,))
    assert kernels(mod) == ["formula"]
    run = tvmlab.compile(mod)
    for new, old in [(3, 0), (1, 4), (2, 3), (0, 2)]:
        made = run(np.ones(new, "int64"), np.ones(old, "int64"))
        assert np.array_equal(made, np.tri(new, old + new, old, dtype="bool"))


def test_a_check_that_only_a_size_of_zero_fails_stays() -> None:
    def moved(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        places = positions(builder, 0, N)
        first = builder.emit(op.strided_slice(places, [0], [0], [1], [1], assume_inbound=True))
        return op.add(builder.emit(op.sum(builder.emit(op.subtract(places, first)))), op.sum(x))

    run = tvmlab.compile(module(moved, (N,)))
    assert run(np.ones(3, "int64")) == 6
    with pytest.raises(OutOfRangeError):
        run(np.ones(0, "int64"))


def test_a_mask_of_packed_sequences_checks_its_size_once() -> None:
    """As transformers finds where a sequence begins: by the distances of the positions."""

    def packed(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        places = positions(builder, 0, N)
        first = builder.emit(op.strided_slice(places, [0], [0], [1], [1], assume_inbound=True))
        both = builder.emit(op.concat([builder.emit(op.subtract(first, number(1))), places]))
        ends = ([0], [N]), ([1], [N + 1])
        before, after = (
            builder.emit(op.strided_slice(both, [0], *end, [1], assume_inbound=True))
            for end in ends
        )
        steps = builder.emit(op.not_equal(builder.emit(op.subtract(after, before)), number(1)))
        runs = builder.emit(op.cumsum(builder.emit(op.astype(steps, "int64")), 0))
        alike, before = (
            builder.emit(compare(each, builder.emit(op.expand_dims(each, 1))))
            for compare, each in ((op.equal, runs), (op.less_equal, places))
        )
        mask = builder.emit(op.astype(builder.emit(op.logical_and(alike, before)), "int64"))
        return op.add(mask, x)

    mod = module(packed, (N,))
    assert kernels(mod) == ["check_sizes", "formula", "relax.add"]
    run = tvmlab.compile(mod)
    for size in (1, 2, 7, 400):
        made = run(np.ones(size, "int64"))
        assert np.array_equal(made, 1 + np.tri(size, dtype="int64"))
    with pytest.raises(OutOfRangeError):
        run(np.ones(0, "int64"))


def test_a_divisor_that_is_zero_elsewhere_is_no_formula() -> None:
    def quotients(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        places = positions(builder, 0, N)
        divisor = builder.emit(op.add(builder.emit(op.flip(places, 0)), number(1)))
        quotient = builder.emit(op.floor_divide(number(60), divisor))
        return op.concat([quotient, builder.emit(op.add(places, places)), x], 0)

    run = tvmlab.compile(module(quotients, (N,)))
    for size in SIZES:
        places = np.arange(size)
        wanted = np.concatenate([60 // (size - places), 2 * places, places])
        assert np.array_equal(run(places), wanted)


def test_a_size_that_is_a_quotient_is_no_formula() -> None:
    def half(builder: relax.BlockBuilder, *_: relax.Expr) -> relax.Expr:
        zeros = builder.emit(op.zeros([N // M], "int64"))
        return op.add(zeros, number(1))

    run = tvmlab.compile(module(half, (N,), (M,)))
    assert np.array_equal(run(np.ones(6, "int64"), np.ones(2, "int64")), [1, 1, 1])


def test_operands_of_unknown_shape_have_no_formula() -> None:
    def part(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        ends = [relax.const([value], "int64") for value in (1, 5, 2)]
        return op.reshape(builder.emit(op.dynamic_strided_slice(x, *ends)), [2])

    run = tvmlab.compile(module(part, (N,)))
    assert np.array_equal(run(np.arange(9)), [1, 3])


def test_a_match_cast_keeps_its_check() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((N,), "int64"))
    with builder.function("main", [x]):
        places = builder.emit(op.add(positions(builder, 0, N), number(0)))
        four = builder.match_cast(places, relax.TensorType((4,), "int64"))
        builder.emit_func_output(builder.emit(op.multiply(four, number(3))))
    run = tvmlab.compile(builder.get())
    assert np.array_equal(run(np.zeros(4, "int64")), [0, 3, 6, 9])
    with pytest.raises(Exception, match="4"):
        run(np.zeros(5, "int64"))


#: Operators of one or two values and a number, with their equivalents in NumPy; `p` is `arange`.
STEPS: dict[str, tuple[Callable[..., relax.Expr], Callable[..., np.ndarray]]] = {
    "add": (lambda emit, x, y, k, p: op.add(x, y), lambda x, y, k: x + y),
    "times": (lambda emit, x, y, k, p: op.multiply(x, number(k)), lambda x, y, k: x * k),
    "less": (
        lambda emit, x, y, k, p: op.astype(emit(op.less(x, y)), "int64"),
        lambda x, y, k: (x < y).astype("int64"),
    ),
    "not": (
        lambda emit, x, y, k, p: op.astype(
            emit(op.bitwise_not(emit(op.equal(x, number(k))))), "int64"
        ),
        lambda x, y, k: (x != k).astype("int64"),
    ),
    "where": (
        lambda emit, x, y, k, p: op.where(emit(op.greater(x, number(k))), y, number(k)),
        lambda x, y, k: np.where(x > k, y, k),
    ),
    "narrow": (
        lambda emit, x, y, k, p: op.astype(
            emit(op.astype(emit(op.minimum(emit(op.maximum(x, number(-9))), number(9))), "int32")),
            "int64",
        ),
        lambda x, y, k: x.clip(-9, 9),
    ),
    "half": (lambda emit, x, y, k, p: op.floor_divide(x, number(2)), lambda x, y, k: x // 2),
    "flip": (lambda emit, x, y, k, p: op.flip(x, 0), lambda x, y, k: x[::-1]),
    "take": (
        lambda emit, x, y, k, p: op.take(x, emit(op.flip(p, 0)), 0, "fast"),
        lambda x, y, k: x[::-1],
    ),
    "gather": (
        lambda emit, x, y, k, p: op.gather_nd(x, emit(op.expand_dims(p, 1))),
        lambda x, y, k: x,
    ),
    "shift": (
        lambda emit, x, y, k, p: op.strided_slice(
            emit(op.concat([x, y], 0)), [0], [N], [2 * N], [1], assume_inbound=True
        ),
        lambda x, y, k: y,
    ),
    "sum": (lambda emit, x, y, k, p: op.cumsum(x, 0), lambda x, y, k: np.cumsum(x)),
}


def steps(names: Sequence[str], of: Sequence[tuple[int, int, int]]) -> tuple[tvm.ir.IRModule, Any]:
    """Return a module that applies operators to `arange` and earlier results, and NumPy's form."""

    def made(builder: relax.BlockBuilder, _: relax.Expr) -> relax.Expr:
        values = [positions(builder, 0, N)]
        for name, (x, y, k) in zip(names, of, strict=True):
            x, y = values[x % len(values)], values[y % len(values)]
            values.append(builder.emit(STEPS[name][0](builder.emit, x, y, k, values[0])))
        return values[-1]

    def by_numpy(size: int) -> np.ndarray:
        values = [np.arange(size)]
        for name, (x, y, k) in zip(names, of, strict=True):
            values.append(STEPS[name][1](values[x % len(values)], values[y % len(values)], k))
        return values[-1]

    return module(made, (N,)), by_numpy


@pytest.mark.parametrize("name", sorted(set(STEPS) - {"sum"}))
def test_each_operator_has_a_formula(name: str) -> None:
    mod, by_numpy = steps([name], [(0, 0, 2)])
    assert kernels(mod) == ["formula"]
    run = tvmlab.compile(mod)
    for size in SIZES:
        assert np.array_equal(run(np.zeros(size, "int64")), by_numpy(size))


PLACES = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(-3, 3))


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), PLACES), min_size=2, max_size=8))
def test_formulas_are_the_numbers_of_the_operators(drawn: list[tuple[str, Any]]) -> None:
    names, of = zip(*drawn, strict=True)
    mod, by_numpy = steps(names, of)
    run = tvmlab.compile(mod)
    for size in SIZES:
        assert np.array_equal(run(np.zeros(size, "int64")), by_numpy(size))
