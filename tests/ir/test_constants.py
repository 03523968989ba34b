"""Views of constants are computed at once; matrices are multiplied as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.oracles.models import array
from tvmlab.ir.constants import fold_constants, fold_others

X = relax.Var("x", relax.TensorType((5, 3, 6), "float32"))
MATRIX = array(4, 6)


def folded(
    first: relax.Expr,
    *steps: Callable[[relax.Expr], relax.Expr],
    more: Sequence[tvm.transform.Pass] = (),
) -> list[relax.Expr]:
    """Bind an expression, then each step of the last one; return what is left after the passes."""
    builder = relax.BlockBuilder()
    with builder.function("main", [X]):
        with builder.dataflow():
            last = builder.emit(first)
            for step in steps:
                last = builder.emit(step(last))
            made = builder.emit_output(last)
        builder.emit_func_output(made)
    passes = [fold_constants(), relax.transform.CanonicalizeBindings(), *more]
    passes.append(relax.transform.DeadCodeElimination())
    body = tvm.transform.Sequential(passes)(builder.get())["main"].body
    return [one.value for block in body.blocks for one in block.bindings]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_a_chain_of_views_of_a_constant_is_a_constant(dtype: str) -> None:
    value = (MATRIX > 0 if dtype == "bool" else MATRIX * 50).astype(dtype)
    (left,) = folded(
        op.permute_dims(relax.const(value)),
        lambda last: op.reshape(last, [2, 3, 4]),
        lambda last: op.permute_dims(last, [-1, 0, 1]),
        lambda last: op.expand_dims(last, 1),
    )
    assert isinstance(left, tvm.ir.GenericConst)
    expected = value.T.reshape(2, 3, 4).transpose(2, 0, 1)[:, None]
    np.testing.assert_array_equal(left.value.numpy(), expected)
    assert str(left.ty.dtype) == dtype


NUMBERS = {
    "float32": np.array([0, -0.0, 1.5, -3, np.inf, -np.inf, np.nan, 3e38, 1e-45], "float32"),
    "float16": np.array([0, -0.0, 1.5, -3, np.inf, -np.inf, np.nan, 6e4, 1e-7], "float16"),
    "int64": np.array([0, 1, -1, 7, 2**62, -(2**63), 2**63 - 1], "int64"),
    "int32": np.array([0, 1, -1, 7, 2**30, -(2**31), 2**31 - 1], "int32"),
    "int8": np.array([0, 1, -1, 100, -128, 127], "int8"),
    "uint8": np.array([0, 1, 100, 200, 255], "uint8"),
    "bool": np.array([True, False, True], "bool"),
}
BINARY = ["add", "subtract", "multiply", "equal", "less", "less_equal", "greater", "greater_equal"]
LOGICAL = ["logical_and", "logical_or"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numpy_computes_what_tvm_computes(dtype: str) -> None:
    """TVM compiles each function instead."""
    x = NUMBERS[dtype]
    every, other = relax.const(x[:, None], dtype), relax.const(x, dtype)
    logical = dtype == "bool"
    made = [getattr(op, name)(every, other) for name in (LOGICAL if logical else BINARY)]
    made += [op.where(op.equal(other, other), every, other)] if not logical else []
    made += [
        op.strided_slice(other, [0], [1], [100], [2]),
        op.strided_slice(other, [-1], [-2], [9]),
    ]
    rows = relax.const(np.array([[3, -1, 0], [1, 5, 1]]), "int64")
    made += [op.take(every, rows, 0, mode) for mode in ("clip", "wrap")]
    made += [op.take(every, relax.const(1, "int64"), 0, "wrap")]
    places = relax.const(np.array([[2], [0]]), "int64")
    made += [op.scatter_nd(every, places, relax.const(x[:2, None], dtype), "update")]
    if dtype in ("int8", "uint8", "int32"):
        scales = relax.const(np.linspace(0.001, 3, x.size), "float32")
        zeros = relax.const(x[::-1].copy() if dtype != "int32" else np.zeros_like(x), dtype)
        made += [op.dequantize(other, relax.const(0.1, "float32"), relax.const(x[0], dtype), 0)]
        made += [op.dequantize(every, scales, zeros, axis) for axis in (0, -2)]
    made += [op.bitwise_not(other)] if dtype[-1] in "48" or logical else []
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([builder.emit(one) for one in made]))
        builder.emit_func_output(out)
    before = builder.get()
    with tvm.target.Target("llvm"):
        values = [
            _constants(by(before)) for by in (fold_constants(), relax.transform.FoldConstant())
        ]
    assert len(values[0]) == len(values[1]) >= len(made)
    for ours, theirs in zip(*values, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def _constants(mod: tvm.IRModule) -> list[np.ndarray]:
    """Return the constants that a function's results are, some of which are bound to variables."""
    blocks = relax.transform.CanonicalizeBindings()(mod)["main"].body.blocks
    found = [one.value for block in blocks for one in block.bindings]
    (results,) = (one.fields for one in found if isinstance(one, relax.Tuple))
    return [one.value.numpy() for one in results if isinstance(one, tvm.ir.GenericConst)]


def test_nan_differs_from_every_number() -> None:
    """Not in code that TVM compiles."""
    x = relax.const(np.array([np.nan, 1], "float32"))
    (differ,) = folded(op.not_equal(x, x))
    assert differ.value.numpy().tolist() == [True, False]


ONE = relax.prim_value(tvm.tirx.FloatImm("float32", 1.0))
LEFT = {
    "arithmetic of bools": lambda: op.add(relax.const(True), relax.const(True)),
    "a number that is no tensor": lambda: op.add(relax.const(MATRIX), ONE),
    "a slice backwards": lambda: op.strided_slice(relax.const(MATRIX), [0], [3], [-5], [-1]),
    "a row of none": lambda: op.take(
        relax.const(np.zeros((0, 2), "float32")), relax.const([0], "int64"), 0, "clip"
    ),
    "a place outside": lambda: op.scatter_nd(
        relax.const(MATRIX), relax.const([[7]], "int64"), relax.const(MATRIX[:1]), "update"
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_numpy_computes_otherwise_is_left_to_tvm(name: str) -> None:
    (left,) = folded(LEFT[name]())
    assert isinstance(left, relax.Call)


def test_sizes_of_a_known_shape_are_constants() -> None:
    (sizes,) = folded(op.shape_of(X), op.shape_to_tensor)
    np.testing.assert_array_equal(sizes.value.numpy(), [5, 3, 6])


def test_a_repeated_matrix_is_multiplied_as_it_is() -> None:
    (product,) = folded(
        op.permute_dims(relax.const(MATRIX)),
        lambda last: op.broadcast_to(last, [5, 6, 4]),
        lambda last: op.matmul(X, last),
    )
    assert [tuple(map(int, arg.ty.shape)) for arg in product.args] == [(5, 3, 6), (6, 4)]


def test_a_matrix_that_gives_the_result_its_batches_stays_repeated() -> None:
    one = op.broadcast_to(relax.const(MATRIX.T), [7, 1, 6, 4])
    both = folded(one, lambda last: op.matmul(X, last))
    assert [str(call.op.name) for call in both] == ["relax.broadcast_to", "relax.matmul"]


def test_a_row_that_is_repeated_to_a_matrix_stays_repeated() -> None:
    row = op.broadcast_to(relax.const(MATRIX[:1, :4]), [6, 4])
    both = folded(row, lambda last: op.matmul(X, last))
    assert [str(call.op.name) for call in both] == ["relax.broadcast_to", "relax.matmul"]


def test_a_broadcast_without_effect_is_dropped() -> None:
    (relu,) = folded(op.broadcast_to(X, [5, 3, 6]), op.nn.relu)
    assert relu.args[0].same_as(X)


C = relax.const(MATRIX)


@pytest.mark.parametrize(
    ("first", "steps"),
    [
        (op.sum(C), []),
        (op.zeros([2, 3], "float32"), []),
        (op.split(C, 2), [lambda last: relax.TupleGetItem(last, 0)]),
        (relax.Tuple([C, C]), [lambda last: op.concat(last, 0)]),
        (op.permute_dims(C), [lambda last: op.concat(relax.Tuple([last, last]), 0)]),
        (relax.ShapeExpr([2, 4, 6]), [lambda last: op.broadcast_to(C, last)]),
    ],
)
def test_other_operators_of_constants_are_upstreams(
    first: relax.Expr, steps: list[Callable[[relax.Expr], relax.Expr]]
) -> None:
    made = folded(first, *steps, more=[fold_others(), relax.transform.CanonicalizeBindings()])
    assert not [one for one in made if isinstance(one, relax.Call)]


def test_upstreams_pass_runs_only_for_operators_of_constants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[tvm.ir.IRModule] = []
    monkeypatch.setattr(relax.transform, "FoldConstant", lambda: lambda m: runs.append(m) or m)
    folded(op.nn.relu(X), lambda last: op.add(last, relax.const(1.0)), more=[fold_others()])
    assert not runs
    folded(op.sum(C), more=[fold_others()])
    assert len(runs) == 1
