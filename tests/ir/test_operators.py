"""The rows of tensor families, compiled and run, against NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.ir.cases import Case, agree, case, names, results

RNG = np.random.default_rng(4)
X = RNG.normal(0, 2, (2, 3, 4)).astype("float32")
Y = RNG.normal(0, 2, (3, 1)).astype("float32")
POSITIVE = np.abs(X) + np.float32(0.5)
UNIT = np.tanh(X)
WHOLE = np.array([-7, 7, -7, 7, 0, 8], "int32")
DIVISOR = np.array([2, 2, -2, -2, 3, -3], "int32")
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, np.inf], "float32")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -1.5], "float32")
TRUE = np.array([[True, False, True], [True, True, True]])
TIES = np.array([[1, 3, 3], [3, 0, 0]], "float32")
TRUNCATED = np.fix(WHOLE / DIVISOR).astype("int32")
UNARY: dict[str, tuple[Callable[..., Any], Any]] = {
    "exp": (np.exp, X),
    "log": (np.log, POSITIVE),
    "log2": (np.log2, POSITIVE),
    "log10": (np.log10, POSITIVE),
    "sqrt": (np.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE),
    "sin": (np.sin, X),
    "cos": (np.cos, X),
    "tan": (np.tan, UNIT),
    "sinh": (np.sinh, X),
    "cosh": (np.cosh, X),
    "tanh": (np.tanh, X),
    "asin": (np.arcsin, UNIT),
    "acos": (np.arccos, UNIT),
    "atan": (np.arctan, X),
    "asinh": (np.arcsinh, X),
    "acosh": (np.arccosh, POSITIVE + 1),
    "atanh": (np.arctanh, UNIT * np.float32(0.9)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), X),
    "erf": (lambda x: torch.erf(torch.from_numpy(x)).numpy(), X),
    "negative": (np.negative, X),
    "abs": (np.abs, X),
    "sign": (np.sign, ODD[1:]),
    "floor": (np.floor, HALVES),
    "ceil": (np.ceil, HALVES),
    "trunc": (np.trunc, HALVES),
    "isnan": (np.isnan, ODD),
    "isinf": (np.isinf, ODD),
    "isfinite": (np.isfinite, ODD),
    "bitwise_not": (np.invert, WHOLE),
    "logical_not": (np.logical_not, TRUE),
    "copy": (np.copy, X),
    "zeros_like": (np.zeros_like, X),
    "ones_like": (np.ones_like, WHOLE),
}
BINARY: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "add": (np.add, X, Y),
    "subtract": (np.subtract, Y, X),
    "multiply": (np.multiply, X, Y),
    "divide": (np.divide, X, Y),
    "maximum": (np.maximum, X, Y),
    "minimum": (np.minimum, X, Y),
    "power": (np.power, POSITIVE, Y),
    "floor_divide": (np.floor_divide, WHOLE, DIVISOR),
    "mod": (np.fmod, WHOLE, DIVISOR),
    "floor_mod": (np.mod, WHOLE, DIVISOR),
    "left_shift": (np.left_shift, WHOLE, np.abs(DIVISOR)),
    "right_shift": (np.right_shift, WHOLE, np.abs(DIVISOR)),
    "bitwise_and": (np.bitwise_and, WHOLE, DIVISOR),
    "bitwise_or": (np.bitwise_or, WHOLE, DIVISOR),
    "bitwise_xor": (np.bitwise_xor, WHOLE, DIVISOR),
    "logical_and": (np.logical_and, TRUE, TRUE[:1]),
    "logical_or": (np.logical_or, TRUE, TRUE[:1]),
    "logical_xor": (np.logical_xor, TRUE, TRUE[:1]),
    "equal": (np.equal, WHOLE, WHOLE[:1]),
    "not_equal": (np.not_equal, WHOLE, WHOLE[:1]),
    "less": (np.less, X, Y),
    "less_equal": (np.less_equal, WHOLE, WHOLE[:1]),
    "greater": (np.greater, X, Y),
    "greater_equal": (np.greater_equal, WHOLE, WHOLE[:1]),
}
ROUNDED = (np.sign(HALVES) * np.floor(np.abs(HALVES.astype("float64")) + 0.5)).astype("float32")
TURNED = X.transpose(1, 0, 2).reshape(3, 8)
PLACE = TURNED.argmax(1).reshape(1, 3, 1).astype("int32")
ELEMENTS = [
    *(case(name, x, want=make(x)) for name, (make, x) in UNARY.items()),
    *(case(name, x, y, want=make(x, y)) for name, (make, x, y) in BINARY.items()),
    case("divide", WHOLE, DIVISOR, want=TRUNCATED),
    case("round", HALVES, want=ROUNDED),
    case("round", WHOLE, want=WHOLE),
    case("log2", np.array([0.125, 8, 2**29], "float32"), want=np.array([-3, 3, 29], "float32")),
    case("clip", X, a_min=-1.0, a_max=1, want=np.clip(X, -1, 1)),
    case("clip", WHOLE, a_min=0.0, a_max=7.0, want=np.clip(WHOLE, 0, 7)),
    case("cast", X, dtype="int8", want=X.astype("int8")),
    case("cast", WHOLE, dtype="uint8", want=WHOLE.astype("uint8")),
    case("cast", ODD[3:], dtype="bool", want=np.array([False, True])),
    case("where", TRUE, np.float32(1), TIES, want=np.where(TRUE, 1, TIES).astype("float32")),
    case("where", WHOLE, X[0, 0, :1], Y[0], want=np.where(WHOLE, X[0, 0, :1], Y[0])),
]
REDUCED = [
    *(
        case(name, X, axis=axis, keepdims=keep, exclude=exclude, want=want)
        for axis, keep, exclude, over in (
            (None, False, False, (0, 1, 2)),
            ([], True, False, (0, 1, 2)),
            ([1], False, False, (1,)),
            ([-1, 0], True, False, (0, 2)),
            ([1], False, True, (0, 2)),
            ([0, 1, 2], False, True, ()),
        )
        for name, make in (
            ("sum", np.sum),
            ("mean", np.mean),
            ("max", np.max),
            ("min", np.min),
            ("prod", np.prod),
        )
        for want in [make(X, axis=over, keepdims=keep)]
    ),
    case("mean", WHOLE, want=np.array(1, "int32")),
    case("mean", -WHOLE, want=np.array(-1, "int32")),
    # The sum does not fit float16: Relay takes it in float32.
    case("mean", np.full(2000, 60, "float16"), want=np.array(60, "float16")),
    case("sum", WHOLE, keepdims=True, want=WHOLE.sum(keepdims=True, dtype="int32")),
    case("variance", X, X.mean((1, 2), keepdims=True), axis=[1, 2], want=X.var((1, 2))),
    case(
        "variance",
        X,
        X.mean(0, keepdims=True),
        axis=[0],
        keepdims=True,
        unbiased=True,
        want=X.var(0, keepdims=True, ddof=1),
    ),
    case("all", TRUE, axis=[1], want=TRUE.all(1)),
    case("any", ~TRUE, axis=[1], keepdims=True, want=(~TRUE).any(1, keepdims=True)),
    case("any", TRUE, want=np.array(True)),
    case("argmax", TIES, axis=[1], want=np.array([1, 0], "int32")),
    case("argmax", TIES, axis=[1], select_last_index=True, want=np.array([2, 0], "int32")),
    case("argmax", TIES, want=np.array(1, "int32")),
    case("argmax", TIES, select_last_index=True, want=np.array(3, "int32")),
    case("argmin", TIES, axis=[0], keepdims=True, want=np.array([[0, 1, 1]], "int32")),
    case("argmin", X, axis=[1], exclude=True, want=TURNED.argmin(1).astype("int32")),
    case("argmax", X, axis=[0, 2], keepdims=True, want=PLACE),
    case("cumsum", X, axis=-1, want=X.cumsum(-1)),
    case("cumsum", WHOLE, axis=0, exclusive=True, want=WHOLE.cumsum(dtype="int32") - WHOLE),
    case("cumsum", X, dtype="float64", want=X.cumsum(dtype="float64")),
]
CASES = [*ELEMENTS, *REDUCED]


@pytest.mark.parametrize("made", CASES, ids=names(CASES))
def test_a_row_computes_what_numpy_does(made: Case) -> None:
    agree(made, results(CASES)[CASES.index(made)])
