"""The rows that NumPy has too, compiled and run, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tvm import relax

from tests.ir.cases import Case, agree, case, names, results

RNG = np.random.default_rng(4)
X = RNG.normal(0, 2, (2, 3, 4)).astype("float32")
Y = RNG.normal(0, 2, (3, 1)).astype("float32")
POSITIVE = np.abs(X) + np.float32(0.5)
UNIT = np.tanh(X) * np.float32(0.9)
WHOLE = np.array([-7, 7, -7, 7, 0, 8], "int32")
DIVISOR = np.array([2, 2, -2, -2, 3, -3], "int32")
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, np.inf], "float32")
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -1.5], "float32")
TRUE = np.array([[True, False, True], [True, True, True]])
TIES = np.array([[1, 3, 3], [3, 0, 0]], "float32")
TRUNCATED = np.fix(WHOLE / DIVISOR).astype("int32")
BY_NAME = [  # NumPy's function has the operator's name
    ("exp sin cos sinh cosh tanh atan asinh negative abs copy zeros_like", X),
    ("log log2 log10 sqrt", POSITIVE),
    ("tan asin acos atanh", UNIT),
    ("acosh", POSITIVE + 1),
    ("sign", ODD[1:]),
    ("floor ceil trunc", HALVES),
    ("isnan isinf isfinite", ODD),
    ("ones_like", WHOLE),
    ("logical_not", TRUE),
    ("add multiply divide maximum minimum less atan2", X, Y),
    ("subtract", Y, X),
    ("power", POSITIVE, Y),
    ("floor_divide bitwise_and bitwise_or bitwise_xor", WHOLE, DIVISOR),
    ("left_shift right_shift", WHOLE, np.abs(DIVISOR)),
    ("logical_and logical_or logical_xor", TRUE, TRUE[:1]),
    ("equal not_equal less_equal greater greater_equal", WHOLE, WHOLE[:1]),
]
ROUNDED = (np.sign(HALVES) * np.floor(np.abs(HALVES.astype("float64")) + 0.5)).astype("float32")
ERF = torch.erf(torch.from_numpy(X)).numpy()
ELEMENTS = [
    *(case(name, *given, want=getattr(np, name)(*given))
      for these, *given in BY_NAME for name in these.split()),
    case("rsqrt", POSITIVE, want=1 / np.sqrt(POSITIVE)),
    case("sigmoid", X, want=1 / (1 + np.exp(-X))),
    case("erf", X, want=ERF),
    case("fast_exp", X, want=np.exp(X)),
    case("fast_erf", X, want=ERF),
    case("fast_tanh", X, want=np.tanh(X)),
    case("annotation.stop_fusion", X, want=X),
    case("bitwise_not", WHOLE, want=~WHOLE),
    case("mod", WHOLE, DIVISOR, want=np.fmod(WHOLE, DIVISOR)),
    case("floor_mod", WHOLE, DIVISOR, want=np.mod(WHOLE, DIVISOR)),
    case("divide", WHOLE, DIVISOR, want=TRUNCATED),
    case("round", HALVES, want=ROUNDED),
    case("round", WHOLE, want=WHOLE),
    case("log2", np.array([0.125, 8, 2**29], "float32"), want=np.array([-3, 3, 29], "float32")),
    case("clip", X, a_min=-1.0, a_max=1, want=np.clip(X, -1, 1)),
    case("clip", WHOLE, a_min=0.0, a_max=7.0, want=np.clip(WHOLE, 0, 7)),
    case("cast", X, dtype="int8", want=X.astype("int8")),
    case("cast", WHOLE, dtype="uint8", want=WHOLE.astype("uint8")),
    case("cast", ODD[3:], dtype="bool", want=np.array([False, True])),
    case("cast_like", X, WHOLE, want=X.astype("int32")),
    case("where", TRUE, np.float32(1), TIES, want=np.where(TRUE, 1, TIES).astype("float32")),
    case("where", WHOLE, X[0, 0, :1], Y[0], want=np.where(WHOLE, X[0, 0, :1], Y[0])),
]  # fmt: skip
TURNED = X.transpose(1, 0, 2).reshape(3, 8)
PLACE = TURNED.argmax(1).reshape(1, 3, 1).astype("int32")
REDUCED = [
    *(case(name, X, axis=axis, keepdims=keep, exclude=exclude,
           want=getattr(np, name)(X, axis=over, keepdims=keep))
      for axis, keep, exclude, over in (
          (None, False, False, (0, 1, 2)),
          ([], True, False, (0, 1, 2)),
          ([1], False, False, (1,)),
          ([-1, 0], True, False, (0, 2)),
          ([1], False, True, (0, 2)),
          ([0, 1, 2], False, True, ()),
      )
      for name in ("sum", "mean", "max", "min", "prod")),
    case("mean", WHOLE, want=np.array(1, "int32")),
    case("mean", -WHOLE, want=np.array(-1, "int32")),
    # The sum does not fit float16: Relay takes it in float32.
    case("mean", np.full(2000, 60, "float16"), want=np.array(60, "float16")),
    case("sum", WHOLE, keepdims=True, want=WHOLE.sum(keepdims=True, dtype="int32")),
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
    case("cumprod", X, axis=1, want=np.cumprod(X, 1)),
    case("cumprod", Y, want=np.cumprod(Y)),
]  # fmt: skip
Z = np.arange(6, dtype="int8").reshape(2, 1, 3)
GRID = np.arange(1, 13, dtype="int32").reshape(3, 4)
SHAPES = [
    *(case("reshape", X, newshape=given, want=X.reshape(want)) for given, want in (
        ([4, 0, 2], (4, 3, 2)),
        ([6, 1, -1], (6, 1, 4)),
        ([-1], 24),
        ([2, -2], (2, 3, 4)),
        ([-3, 4], (6, 4)),
        ([0, -3], (2, 12)),
        ([-4, 1, 2, -2], (1, 2, 3, 4)),
        ([2, -4, -1, 3, -2], (2, 1, 3, 4)),
    )),
    case("transpose", X, axes=None, want=X.T),
    case("transpose", X, axes=[0, -1, 1], want=X.transpose(0, 2, 1)),
    case("expand_dims", X, axis=1, num_newaxis=2, want=X[:, None, None]),
    case("expand_dims", X, axis=-1, num_newaxis=2, want=X[..., None, None]),
    case("expand_dims", X, axis=-2, num_newaxis=2, want=X[:, :, None, None]),
    case("expand_dims", X, axis=0, num_newaxis=0, want=X),
    case("squeeze", Z, want=Z[:, 0]),
    case("split", X, indices_or_sections=2, axis=-1, want=tuple(np.split(X, 2, -1))),
    case("split", X, indices_or_sections=[1, 2], axis=1, want=tuple(np.split(X, [1, 2], 1))),
    case("split", X, indices_or_sections=1, want=(X,)),
    case("strided_slice", X, begin=[0, -2], end=[100, -1], strides=[1], want=X[:, -2:-1]),
    case("strided_slice", X, begin=[0, 0, 0], end=[2, 3, 4], strides=[2], want=X[::2]),
    case("strided_slice", X, begin=[3, 2], end=[-9, -9], strides=[-2, -1], axes=[2, 1],
         want=X[:, ::-1, ::-2]),
    case("strided_slice", X, begin=[1, -3], end=[-1, 2], strides=[9], slice_mode="size",
         axes=[1, 2], want=X[:, 1:, 1:3]),
    case("concatenate", [X, X[:, :1]], axis=-2, want=np.concatenate([X, X[:, :1]], 1)),
    case("concatenate", [Z], want=Z),
    case("stack", [X, X + 1], axis=-1, want=np.stack([X, X + 1], -1)),
    case("tile", Z, reps=[2, 1, 1, 2], want=np.tile(Z, [2, 1, 1, 2])),
    case("repeat", X, repeats=2, axis=-2, want=X.repeat(2, -2)),
    case("repeat", X, repeats=2, axis=None, want=X.repeat(2)),
    case("reverse", X, axis=-1, want=X[..., ::-1]),
    case("broadcast_to", Z, shape=[2, 2, 4, 3], want=np.broadcast_to(Z, (2, 2, 4, 3))),
    case("layout_transform", X[None], src_layout="NCHW", dst_layout="NHWC",
         want=X[None].transpose(0, 2, 3, 1)),
]  # fmt: skip
PLACES = np.array([[0, 5], [-1, 1]], "int32")
ROWS = np.array([[1, 0, 1], [2, 2, 0]], "int64")
FALLING = np.arange(7, 0, -3, "int32")
HALF = np.arange(0, 2, 0.5, "float32")
LEFT = np.array([[0.5, -1.0, 3.0], [2.0, 2.0, -7.0]], "float32")
INDEX, UPDATES = np.array([[2, 2], [0, 1]]), np.array([[10, 20], [30, 40]], "float32")
FIVE, MINUS = np.float32(5), np.float32(-1)


def scattered(how: str) -> np.ndarray:
    """Scatter the updates by PyTorch, which has no plain update among its reductions."""
    data, index, updates = map(torch.from_numpy, (LEFT, INDEX, UPDATES))
    return data.scatter_reduce(1, index, updates, how).numpy()


PICKED = [
    case("take", X, PLACES, axis=1, want=X[:, np.clip(PLACES, 0, 2)]),
    case("take", X, PLACES, axis=-1, mode="wrap", want=X[..., PLACES % 4]),
    case("take", X, PLACES, want=X.take(np.clip(PLACES, 0, 23))),
    case("take", X[0, 0], PLACES, mode="wrap", want=X[0, 0][PLACES % 4]),
    case("take", X, np.int64(1), axis=0, mode="fast", want=X[1]),
    case("gather", LEFT, ROWS, axis=1, want=np.take_along_axis(LEFT, ROWS, 1)),
    case("gather", LEFT, PLACES[:1] // 5, axis=-2, want=LEFT[[[0, 1]], [[0, 1]]]),
    case("gather_nd", GRID, np.array([[1, 1, 0], [0, 1, 0]], "int32"),
         want=GRID[[1, 1, 0], [0, 1, 0]]),
    case("gather_nd", X, np.array([[0, 1], [1, 0]]), want=X[[0, 1], [1, 0]]),
    case("gather_nd", X, np.array([[1, 0]]), batch_dims=1, want=X[[0, 1], [1, 0]]),
    *(case("scatter_elements", LEFT, INDEX, UPDATES, axis=-1, reduction=ours,
           want=scattered(theirs))
      for ours, theirs in (("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax"))),
    case("scatter_elements", LEFT, np.array([[0, 1], [0, 1]]), UPDATES, axis=1,
         want=np.hstack([UPDATES, LEFT[:, 2:]])),
    case("argsort", LEFT, want=LEFT.argsort(-1, kind="stable").astype("int32")),
    case("argsort", LEFT, axis=0, is_ascend=False, dtype="int64", want=(-LEFT).argsort(0)),
    case("sort", LEFT, axis=-1, want=np.sort(LEFT, 1)),
    case("sort", GRID, axis=0, is_ascend=False, want=np.sort(GRID, 0)[::-1]),
    case("topk", LEFT, k=2, ret_type="values", want=-np.sort(-LEFT)[:, :2]),
    case("topk", LEFT, k=1, axis=0, is_ascend=True, dtype="int64",
         want=(LEFT.min(0, keepdims=True), LEFT.argmin(0, keepdims=True))),
    case("topk", LEFT[:1], k=3, ret_type="indices", want=np.array([[2, 0, 1]], "int32")),
    case("one_hot", PLACES, FIVE, MINUS, depth=2, axis=-1, dtype="float32",
         want=np.where(PLACES[..., None] == np.arange(2), FIVE, MINUS)),
    case("one_hot", PLACES, FIVE, MINUS, depth=6, axis=0, dtype="int8",
         want=np.where(np.arange(6)[:, None, None] == PLACES, 5, -1).astype("int8")),
    case("full", np.float32(2.75), shape=[2, 1], want=np.full((2, 1), 2.75, "float32")),
    case("full", np.float32(2.75), dtype="int32", shape=[3], want=np.full(3, 2, "int32")),
    case("full_like", Z, np.int8(3), want=np.full_like(Z, 3)),
    case("zeros", shape=[2, 2], dtype="int8", want=np.zeros((2, 2), "int8")),
    case("ones", shape=[], dtype="float32", want=np.ones((), "float32")),
    case("arange", *(relax.const(n, "int32") for n in (7, 0, -3)), dtype="int32", want=FALLING),
    case("arange", *(relax.const(n, "float32") for n in (0, 2, 0.5)), dtype="float32", want=HALF),
    case("shape_of", Z, dtype="int64", want=np.array([2, 1, 3])),
    case("shape_of", Z, want=np.array([2, 1, 3], "int32")),
]  # fmt: skip
MORE = np.arange(12, dtype="float32").reshape(4, 3)
EINSUMS = [
    ("bij,jk->bik", X, MORE),
    ("...ij,jk", X, MORE),
    ("ij,ij->", X[0], X[1]),
    ("ii->i", MORE[:3]),
]
SUMS = [
    case("einsum", given, equation=equation, want=np.einsum(equation, *given))
    for equation, *given in EINSUMS
]
CASES = [*ELEMENTS, *REDUCED, *SHAPES, *PICKED, *SUMS]


@pytest.mark.parametrize("made", CASES, ids=names(CASES))
def test_a_row_computes_what_numpy_does(made: Case) -> None:
    agree(made, results(CASES)[CASES.index(made)])
