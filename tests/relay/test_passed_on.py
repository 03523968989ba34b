"""What code reads off an expression's type, and passes on to make another expression."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import ir, tirx

from tvmlab import relay
from tvmlab.errors import RelayError

X = relay.var("x", shape=(2, 3), dtype="int8")
SCALES = [relay.const(1.0), relay.const(0), relay.const(1.0), relay.const(0)]


@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: relay.cast(X, dtype),
        lambda dtype: relay.full(relay.const(1), (2, 3), dtype),
        lambda dtype: relay.zeros((2, 3), dtype=dtype),
        lambda dtype: relay.qnn.op.requantize(relay.cast(X, "int32"), *SCALES, out_dtype=dtype),
        lambda dtype: relay.var("y", shape=(2, 3), dtype=dtype),
    ],
)
@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_a_dtype_is_that_of_a_type_or_its_name(make: Any, name: str) -> None:
    read = relay.TensorType((2, 3), name).dtype
    assert isinstance(read, ir.PrimType)
    assert make(read).ty == make(name).ty == relay.TensorType((2, 3), name)
    assert str(relay.const(1, read).ty.dtype) == name


def test_a_dtype_is_no_other_type() -> None:
    with pytest.raises(RelayError, match="'dtype' of cast is a string"):
        relay.cast(X, relay.TensorType((2,), "int8"))


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: relay.zeros(shape, "float32"),
        lambda shape: relay.reshape(relay.var("y", shape=(6,)), shape),
        lambda shape: relay.broadcast_to(relay.var("y", shape=(3,)), shape),
        lambda shape: relay.full(relay.const(1.0), shape),
    ],
)
def test_a_shape_is_that_of_a_type_or_numbers(make: Any) -> None:
    wanted = relay.TensorType((2, 3))
    assert make(X.checked_type.shape).ty == make([2, 3]).ty == wanted


def test_a_shape_that_is_known_at_run_time_is_no_attribute() -> None:
    some = relay.TensorType((tirx.Var("n", "int64"), 3))
    with pytest.raises(RelayError, match="computed by the model"):
        relay.zeros(some.shape, "float32")
