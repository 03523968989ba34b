"""Views of constants are computed at once; matrices are multiplied as they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.oracles.models import array
from tvmlab.ir.constant_views import fold_views

X = relax.Var("x", relax.TensorType((5, 3, 6), "float32"))
MATRIX = array(4, 6)


def folded(first: relax.Expr, *steps: Callable[[relax.Expr], relax.Expr]) -> list[relax.Expr]:
    """Bind an expression, then each step of the last one; return what is left after the pass."""
    builder = relax.BlockBuilder()
    with builder.function("main", [X]):
        with builder.dataflow():
            last = builder.emit(first)
            for step in steps:
                last = builder.emit(step(last))
            made = builder.emit_output(last)
        builder.emit_func_output(made)
    passes = [fold_views(), relax.transform.CanonicalizeBindings()]
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
