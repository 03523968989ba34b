"""Tensors that share memory."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.oracles.models import array
from tests.short import examples

N = tirx.Var("n", "int64")
WHOLE, HALF = array(16, 16) / 4, array(8, 16) / 4
Step = tuple[str, int, int]


def network(steps: list[Step], results: list[int], n: tirx.Var | int) -> tvm.IRModule:
    """Make a network whose steps use any earlier values, of n, 2n and 4n rows."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((n, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = [(x, 1)]
            for kind, i, j in steps:
                (a, rows), (b, others) = made[i % len(made)], made[j % len(made)]
                if kind == "add" and rows == others:
                    a = op.add(a, b)
                elif kind == "halve" and rows < 4:
                    rows *= 2
                    a = op.matmul(builder.emit(op.reshape(a, [n * rows, 8])), relax.const(HALF))
                else:
                    a = op.matmul(a, relax.const(WHOLE))
                made.append((builder.emit(a), rows))
            found = [made[i % len(made)][0] for i in results]
            result = builder.emit_output(relax.Tuple([op.nn.relu(one) for one in found]))
        builder.emit_func_output(result)
    return builder.get()


def by_numpy(steps: list[Step], results: list[int], x: np.ndarray) -> list[np.ndarray]:
    made = [x.astype("float64")]
    for kind, i, j in steps:
        a, b = made[i % len(made)], made[j % len(made)]
        if kind == "add" and a.shape == b.shape:
            made.append(a + b)
        elif kind == "halve" and len(a) < 4 * len(x):
            made.append(a.reshape(-1, 8) @ HALF)
        else:
            made.append(a @ WHOLE)
    return [np.maximum(made[i % len(made)], 0) for i in results]


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "halve", "product"]), *[st.integers(0, 30)] * 2)),
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.booleans(),
)
def test_no_tensor_is_overwritten_too_early(
    steps: list[Step], results: list[int], is_open: bool
) -> None:
    run = tvmlab.compile(network(steps, results, N if is_open else 3))
    for rows in (1, 3, 20) if is_open else (3,):
        x = array(rows, 16)
        for found, expected in zip(run(x), by_numpy(steps, results, x), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4 * (1 + abs(expected).max()))


def calls(length: int, n: tirx.Var | int) -> Counter[str]:
    """Compile a chain of products of different sizes; count the machine's calls by their names."""
    steps = [("halve" if i % 4 == 1 else "product", i, i) for i in range(length)]
    text = tvmlab.compile(network(steps, [length], n)).vm_executable.as_text()
    return Counter(re.findall(r"call\s+vm\.builtin\.(\w+)", text))


@pytest.mark.parametrize("n", [N, 3])
def test_a_longer_network_allocates_no_more(n: tirx.Var | int) -> None:
    short, long = calls(12, n), calls(24, n)
    for name in ("alloc_storage", "alloc_tensor", "make_shape", "null_value"):
        assert short[name] == long[name]
    assert 2 <= short["alloc_storage"] <= 4
    assert short["reshape"] == 0


def test_sizes_that_depend_on_data_are_released() -> None:
    rows = tirx.Var("rows", "int64")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((N,), "float32"))
    with builder.function("main", [x]):
        made = builder.emit(op.unique(x, sorted=True))
        made = builder.match_cast(made, relax.TensorType((rows,), "float32"))
        for _ in range(6):
            made = builder.emit(op.nn.softmax(made))
        builder.emit_func_output(made)
    run = tvmlab.compile(builder.get())
    # The last softmax is the result.
    assert len(re.findall(r"call +vm\.builtin\.null_value", run.vm_executable.as_text())) >= 5
    expected = np.array([1.0, 2.0, 3.0])
    for _ in range(6):
        expected = np.exp(expected) / np.exp(expected).sum()
    np.testing.assert_allclose(run(np.float32([3, 1, 3, 2])), expected, rtol=1e-5)


def test_a_size_can_be_undefined_for_some_inputs() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((N,), "float32"))
    with builder.function("main", [x]):
        # Undefined for 64 rows, by which storages are ordered.
        made = builder.emit(op.full((N * N // (N - 64),), relax.const(2.0)))
        made = builder.emit(op.nn.softmax(made))
        builder.emit_func_output(builder.emit(op.nn.softmax(made)))
    size = 70 * 70 // 6
    np.testing.assert_allclose(tvmlab.compile(builder.get())(array(70)), [1 / size] * size)


def test_results_have_memory_of_their_own() -> None:
    # Two tensors take turns; the result would have room in one of them.
    assert calls(4, 3)["alloc_storage"] == 3
    run = tvmlab.compile(network([("product", i, i) for i in range(4)], [4], 3))
    machine = relax.VirtualMachine(run.vm_executable, tvm.cpu())
    first = machine["main"](tvm.runtime.tensor(array(3, 16)))[0]
    kept = first.numpy()
    machine["main"](tvm.runtime.tensor(-array(3, 16)))
    np.testing.assert_array_equal(first.numpy(), kept)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), choose: R.Tensor((), "bool")):
        if choose:
            a = R.exp(x)
            b = R.nn.softmax(a)
            y = R.add(b, a)
        else:
            c = R.tanh(x)
            y = R.multiply(c, c)
        return R.add(y, x)


def test_branches_allocate_memory_of_their_own() -> None:
    run, x = tvmlab.compile(Branches), array(4, 8)
    power = np.exp(x.astype("float64"))
    once = np.exp(power - power.max(-1, keepdims=True))
    expected = {True: once / once.sum(-1, keepdims=True) + power + x, False: np.tanh(x) ** 2 + x}
    for choose in (True, False, True):
        np.testing.assert_allclose(run(x, np.array(choose)), expected[choose], rtol=1e-5)


@pytest.mark.parametrize("options", [{"schedule": False}, {"target": "c"}])
def test_branches_are_refused_where_upstream_plans_memory(options: dict[str, object]) -> None:
    with pytest.raises(tvmlab.errors.CompileError, match="with `if`"):
        tvmlab.compile(Branches, **options)
