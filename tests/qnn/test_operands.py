"""What is refused when a call of a quantized operator is built, not when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvmlab.errors import InputError, ShapeError
from tvmlab.qnn import op


def tensor(dtype: str, *shape: int) -> relax.Var:
    return relax.Var("x", relax.TensorType(shape or (2, 8), dtype))


def scale(value: Any = 0.1) -> relax.Expr:
    return relax.const(np.asarray(value, "float32"))


def zero(value: Any = 1) -> relax.Expr:
    return relax.const(np.asarray(value, "int32"))


X = tensor("uint8")
PAIR = (scale(), zero())
FLOAT, WEIGHT, MATRIX = tensor("float32"), tensor("int8", 4, 8), tensor("int8", 1, 2, 3)
CASES: list[tuple[Callable[[], Any], str, str]] = [
    # Numbers in place of expressions
    (lambda: op.quantize(FLOAT, 0.1, zero()), "output_scale is of class float", "0.1"),  # type: ignore[arg-type]
    (lambda: op.dequantize(X, scale(), 3), "input_zero_point is of class int", "const(3, 'int32')"),  # type: ignore[arg-type]
    (lambda: op.tanh("x", *PAIR, *PAIR), "x is of class str", "a variable"),  # type: ignore[arg-type]
    (
        lambda: op.concatenate([X, X], [scale(), 0.2], [zero()] * 2, *PAIR, 1),  # type: ignore[list-item]
        "input_scales.1 is of class float",
        "const(0.2, 'float32')",
    ),
    # Scales and zero points that are none
    (lambda: op.quantize(FLOAT, scale(), zero(300)), "output_zero_point is 300", "of int8"),
    (lambda: op.dequantize(X, scale(-1), zero()), "input_scale is -1.0", "above zero"),
    (lambda: op.dequantize(X, scale([1] * 7 + [np.nan]), zero()), "nan at channel 7", "scale"),
    (lambda: op.requantize(X, scale(), zero(-1), *PAIR), "input_zero_point is -1", "uint8"),
    (
        lambda: op.requantize(X, *PAIR, scale(), zero(200), out_dtype="int8"),
        "output_zero_point is 200",
        "values of int8",
    ),
    (lambda: op.add(X, X, *PAIR, scale(), zero(256), *PAIR), "rhs_zero_point is 256", "uint8"),
    (lambda: op.mul(X, X, *PAIR, *PAIR, scale(), zero(-2)), "output_zero_point is -2", "uint8"),
    (
        lambda: op.dense(X, WEIGHT, zero(), zero(200), scale(), scale(), 4),
        "zero_point is 200",
        "values of int8",
    ),
    (
        lambda: op.batch_matmul(MATRIX, MATRIX, zero(), zero(-129), scale(), scale()),
        "y_zero_point is -129",
        "of int8",
    ),
    (lambda: op.tanh(X, scale(np.inf), zero(), *PAIR), "scale is inf", "finite"),
    # Relay's arithmetic of it is of int8 only
    (lambda: op.softmax(X, *PAIR, *PAIR), "x has dtype uint8; qnn.softmax takes int8", "operand x"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "match", "more"), CASES)
def test_an_operand_is_refused_by_name(make: Callable[[], Any], match: str, more: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        make()
    assert more in str(caught.value)


def test_what_lies_within_is_taken() -> None:
    assert op.quantize(FLOAT, scale(), zero(200), out_dtype="uint8").ty.dtype == "uint8"
    assert op.dequantize(tensor("int32"), scale(), zero(70000)).ty.dtype == "float32"
    wide = relax.const(np.asarray(1e-60), "float64")
    assert op.requantize(tensor("int32"), wide, zero(0), scale(), zero(-128)).ty.dtype == "int8"
    assert op.softmax(tensor("int8"), *PAIR, *PAIR).ty.dtype == "int8"


@pytest.mark.parametrize("axis", [1, -1])
def test_the_axis_of_the_channels_is_named(axis: int) -> None:
    three = scale([1, 2, 3])
    makers: list[Callable[[], Any]] = [
        lambda: op.quantize(FLOAT, three, zero(), axis=axis),
        lambda: op.dequantize(X, three, zero(), axis=axis),
        lambda: op.requantize(X, three, zero(), *PAIR, axis=axis),
        lambda: op.add(X, X, three, zero(), *PAIR, *PAIR, lhs_axis=axis),
    ]
    for make in makers:
        with pytest.raises(ShapeError, match="3 values; there are 8 channels along") as caught:
            make()
        assert caught.value.what.endswith(f"along axis {axis}")
