"""Integer tensors that depend on sizes alone: one loop nest, with PyTorch's or NumPy's numbers."""

from __future__ import annotations

from collections.abc import Callable
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
Value = tuple[relax.Expr, Callable[[np.ndarray], np.ndarray]]


def causal(x: torch.Tensor) -> torch.Tensor:
    """Return the mask of packed sequences, as transformers' models compute it."""
    row = torch.arange(x.shape[0])[None]
    packed = (torch.diff(row, prepend=row[:, :1] - 1, dim=-1) != 1).cumsum(-1)
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


def test_a_mask_of_tokens_after_others() -> None:
    builder, (n, m) = relax.BlockBuilder(), (tvm.tirx.Var(name, "int64") for name in "nm")
    x, y = (relax.Var("x", relax.TensorType((size,), "bool")) for size in (n, m))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            rows = builder.emit(op.expand_dims(op.arange(m, m + n, 1, "int64"), 1))
            columns = builder.emit(op.expand_dims(op.arange(0, m + n, 1, "int64"), 0))
            mask = builder.emit(op.less_equal(columns, rows))
            result = builder.emit_output(op.logical_and(mask, op.expand_dims(x, 1)))
        builder.emit_func_output(result)
    mod = builder.get()
    assert kernels(mod) == ["formula", "relax.expand_dims", "relax.logical_and"]
    run = tvmlab.compile(mod)
    for new, old in [(3, 0), (1, 4), (2, 3), (0, 2)]:
        mask = run(np.ones(new, "bool"), np.ones(old, "bool"))
        assert np.array_equal(mask, np.tri(new, old + new, old, dtype="bool"))


def test_a_formula_that_does_not_hold_without_elements_is_not_used() -> None:
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            positions = builder.emit(op.add(builder.emit(op.arange(0, n, 1, "int64")), number(2)))
            first = op.strided_slice(positions, [0], [0], [1], [1], assume_inbound=True)
            result = builder.emit_output(first)
        builder.emit_func_output(result)
    run = tvmlab.compile(builder.get())
    assert np.array_equal(run(np.ones(3, "int64")), [2])
    with pytest.raises(OutOfRangeError):
        run(np.ones(0, "int64"))


def number(value: int) -> relax.Expr:
    return relax.const(value, "int64")


def step(data: st.DataObject, values: list[Value], emit: Callable[..., Any], n: Any) -> Value:
    """Draw an operator of one or two of the values, with its equivalent in NumPy."""
    (x, by_x), (y, by_y) = (data.draw(st.sampled_from(values)) for _ in range(2))
    k = data.draw(st.integers(-3, 3))
    name = data.draw(st.sampled_from(["add", "times", "less", "not", "where", "sum", "shift",
                                      "half", "flip", "take", "gather"]))  # fmt: skip
    match name:
        case "add":
            return op.add(x, y), lambda p: by_x(p) + by_y(p)
        case "times":
            return op.multiply(x, number(k)), lambda p: by_x(p) * k
        case "less":
            less = op.astype(emit(op.less(x, y)), "int64")
            return less, lambda p: (by_x(p) < by_y(p)).astype("int64")
        case "not":
            other = emit(op.bitwise_not(emit(op.equal(x, number(k)))))
            return op.astype(other, "int64"), lambda p: (by_x(p) != k).astype("int64")
        case "where":
            above = emit(op.greater(x, number(k)))
            return op.where(above, y, number(k)), lambda p: np.where(by_x(p) > k, by_y(p), k)
        case "sum":
            return op.cumsum(x, 0), lambda p: np.cumsum(by_x(p))
        case "shift":
            both = emit(op.concat([x, y], 0))
            made = op.strided_slice(both, [0], [1], [n + 1], [1], assume_inbound=False)
            made = op.reshape(emit(op.add(emit(made), number(0))), [n])
            return made, lambda p: np.append(by_x(p), by_y(p))[1 : len(p) + 1]
        case "half":
            return op.floor_divide(x, number(2)), lambda p: by_x(p) // 2
        case "flip":
            return op.flip(x, 0), lambda p: by_x(p)[::-1]
        case "take":
            last = emit(op.flip(values[0][0], 0))
            return op.take(x, last, 0, "fast"), lambda p: by_x(p)[::-1]
        case _:
            place = emit(op.expand_dims(values[0][0], 1))
            return op.gather_nd(x, place), by_x


@given(st.data())
def test_formulas_are_the_numbers_of_the_operators(data: st.DataObject) -> None:
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            positions = builder.emit(op.arange(0, n, 1, "int64"))
            values: list[Value] = [(positions, lambda p: p)]
            for _ in range(data.draw(st.integers(2, 8))):
                made, by_numpy = step(data, values, builder.emit, n)
                values.append((builder.emit(made), by_numpy))
            result = builder.emit_output(op.add(values[-1][0], x))
        builder.emit_func_output(result)
    run = tvmlab.compile(builder.get())
    for size in SIZES:
        wanted = values[-1][1](np.arange(size)) if size else np.zeros(0, "int64")
        assert np.array_equal(run(np.zeros(size, "int64")), wanted)
