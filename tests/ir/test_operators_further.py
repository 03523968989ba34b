"""Sorting, likeness, mirrors and fast functions: compiled and run against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.ir.cases import agree, case, names, results
from tests.ir.reference import back_and_forth, made, unknown, var
from tvmlab import relay
from tvmlab.errors import RelayError

X = np.array([[3.0, -1.0, 0.0], [0.5, 2.0, -7.0]], "float32")
Y = np.arange(1, 13, dtype="int32").reshape(3, 4)
ERF = np.vectorize(math.erf)(X).astype("float32")
SOFT = np.exp(X) / np.exp(X).sum(0, keepdims=True)

CASES = [
    case("sort", X, axis=-1, want=np.sort(X, 1)),
    case("sort", Y, axis=0, is_ascend=False, want=np.sort(Y, 0)[::-1]),
    case("cumprod", Y, axis=1, want=np.cumprod(Y, 1, dtype="int32")),
    case("cumprod", X, want=np.cumprod(X)),
    case("atan2", X, np.float32(2.0), want=np.arctan2(X, np.float32(2.0))),
    case("slice_like", Y, np.zeros((2, 3), "int8"), want=Y[:2, :3]),
    case("slice_like", Y, np.zeros((2, 3), "int8"), axes=[-1], want=Y[:, :3]),
    case("slice_like", Y, np.zeros(2, "int8"), want=Y[:2]),
    case("cast_like", X, Y, want=X.astype("int32")),
    case("ndarray_size", Y, want=np.array(12, "int32")),
    case("ndarray_size", Y, dtype="int64", want=np.array(12, "int64")),
    case("nn.mirror_pad", Y, pad_width=[[3, 1], [0, 2]],
         want=np.pad(Y, [(3, 1), (0, 2)], "symmetric")),
    case("nn.mirror_pad", Y, pad_width=[[2, 1], [0, 3]], mode="REFLECT",
         want=np.pad(Y, [(2, 1), (0, 3)], "reflect")),
    case("fast_exp", X, want=np.exp(X)),
    case("fast_erf", X, want=ERF),
    case("fast_tanh", X, want=np.tanh(X)),
    case("nn.fast_softmax", X, axis=0, want=SOFT),
    case("annotation.stop_fusion", X, want=X),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES)), ids=names(CASES))
def test_results(index: int) -> None:
    agree(CASES[index], results(CASES)[index])


def test_relays_functions() -> None:
    x = relay.var("x", shape=(4, 5))
    assert "is_ascend=False" in relay.astext(relay.sort(x, 0, False))
    padded = relay.nn.mirror_pad(x, ((1, 1), (0, 2)))
    assert [int(size) for size in padded.checked_type.shape] == [6, 7]
    assert str(relay.ndarray_size(x).checked_type.dtype) == "int32"
    assert back_and_forth(relay.sort(x, axis=0)) == {"axis": 0, "is_ascend": True, "dtype": ""}


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: made("slice_like", var(2), var(3)), "2 elements, fewer than 3"),
        (lambda: made("slice_like", var(2), var(1, 1)), "data has 1 dimensions"),
        (lambda: made("nn.mirror_pad", var(2), pad_width=[[3, 0]]), "do not fit"),
        (lambda: made("nn.mirror_pad", var(2), pad_width=[[2, 0]], mode="REFLECT"), "do not fit"),
        (lambda: made("nn.mirror_pad", var(2), pad_width=[[1]]), "do not fit"),
        (lambda: made("nn.mirror_pad", var(2), pad_width=[[-1, 1]]), "do not fit"),
        (lambda: made("nn.mirror_pad", var(2), pad_width=[[1, 1]], mode="WRAP"), "no mode"),
        (lambda: made("cast_like", var(2), unknown()), "dtype"),
    ],
)
def test_what_does_not_fit(make: Any, what: str) -> None:
    with pytest.raises(RelayError, match=what):
        make()
