"""The rows that move, pick and make elements, compiled and run, against NumPy and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tvm import relax

from tests.ir.cases import Case, agree, case, names, results

X = np.arange(24, dtype="float32").reshape(2, 3, 4)
Z = np.arange(6, dtype="int8").reshape(2, 1, 3)
PLACES = np.array([[0, 5], [-1, 1]], "int32")
ROWS = np.array([[1, 0, 1], [2, 2, 0]], "int64")
BLOCKS = np.arange(2 * 8 * 3, dtype="float32").reshape(2, 8, 3, 1)
INNER = BLOCKS.reshape(2, 2, 4, 3, 1).transpose(0, 1, 3, 4, 2)  # NCHW4c
FALLING = np.arange(7, 0, -3, "int32")
HALF = np.arange(0, 2, 0.5, "float32")
LEFT = np.array([[0.5, -1.0, 3.0], [2.0, 2.0, -7.0]], "float32")


def scattered(how: str | None) -> np.ndarray:
    """Scatter two numbers by PyTorch, which has no plain update among its reductions."""
    data, index = torch.from_numpy(LEFT), torch.tensor([[2, 2], [0, 1]])
    updates = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    if how is None:  # PyTorch does not say which of two updates wins
        return data.scatter(1, index[1:].repeat(2, 1), updates).numpy()
    return data.scatter_reduce(1, index, updates, how).numpy()


SHAPES = [
    case("reshape", X, newshape=[4, 0, 2], want=X.reshape(4, 3, 2)),
    case("reshape", X, newshape=[6, 1, -1], want=X.reshape(6, 1, 4)),
    case("reshape", X, newshape=[-1], want=X.reshape(24)),
    case("reshape", X, newshape=[2, -2], want=X),
    case("reshape", X, newshape=[-3, 4], want=X.reshape(6, 4)),
    case("reshape", X, newshape=[0, -3], want=X.reshape(2, 12)),
    case("reshape", X, newshape=[-4, 1, 2, -2], want=X.reshape(1, 2, 3, 4)),
    case("reshape", X, newshape=[2, -4, -1, 3, -2], want=X.reshape(2, 1, 3, 4)),
    case("reshape_like", X, np.zeros((6, 4), "int8"), want=X.reshape(6, 4)),
    case(
        "reshape_like",
        np.arange(24.0).reshape(1, 2, 3, 4),
        np.zeros((6, 2, 2, 3)),
        lhs_begin=1,
        rhs_end=3,
        want=np.arange(24.0).reshape(1, 6, 2, 2),
    ),
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
    case(
        "strided_slice",
        X,
        begin=[3, 2],
        end=[-9, -9],
        strides=[-2, -1],
        axes=[2, 1],
        want=X[:, ::-1, ::-2],
    ),
    case(
        "strided_slice",
        X,
        begin=[1, -3],
        end=[-1, 2],
        strides=[9],
        slice_mode="size",
        axes=[1, 2],
        want=X[:, 1:, 1:3],
    ),
    case("concatenate", [X, X[:, :1]], axis=-2, want=np.concatenate([X, X[:, :1]], 1)),
    case("concatenate", [Z], want=Z),
    case("stack", [X, X + 1], axis=-1, want=np.stack([X, X + 1], -1)),
    case("tile", Z, reps=[2, 1, 1, 2], want=np.tile(Z, [2, 1, 1, 2])),
    case("repeat", X, repeats=2, axis=-2, want=X.repeat(2, -2)),
    case("repeat", X, repeats=2, axis=None, want=X.repeat(2)),
    case("reverse", X, axis=-1, want=X[..., ::-1]),
    case("broadcast_to", Z, shape=[2, 2, 4, 3], want=np.broadcast_to(Z, (2, 2, 4, 3))),
    case("broadcast_to_like", Z, np.zeros((2, 4, 3)), want=np.broadcast_to(Z, (2, 4, 3))),
    case("collapse_sum_like", X, np.zeros((3, 1), "float32"), want=X.sum((0, 2))[:, None]),
    case(
        "layout_transform",
        BLOCKS,
        src_layout="NCHW",
        dst_layout="NHWC",
        want=BLOCKS.transpose(0, 2, 3, 1),
    ),
    case("layout_transform", BLOCKS, src_layout="NCHW", dst_layout="NCHW4c", want=INNER),
    case(
        "layout_transform",
        INNER,
        src_layout="NCHW4c",
        dst_layout="HWNC2c",
        want=BLOCKS.reshape(2, 4, 2, 3, 1).transpose(3, 4, 0, 1, 2),
    ),
    case(
        "layout_transform",
        BLOCKS,
        src_layout="OIHW",
        dst_layout="OIHW4i2o",
        want=BLOCKS.reshape(1, 2, 2, 4, 3, 1).transpose(0, 2, 4, 5, 3, 1),
    ),
]
PICKED = [
    case("take", X, PLACES, axis=1, want=X[:, np.clip(PLACES, 0, 2)]),
    case("take", X, PLACES, axis=-1, mode="wrap", want=X[..., PLACES % 4]),
    case("take", X, PLACES, want=X.take(np.clip(PLACES, 0, 23))),
    case("take", X[0, 0], PLACES, mode="wrap", want=X[0, 0][PLACES % 4]),
    case("take", X, np.int64(1), axis=0, mode="fast", want=X[1]),
    case("gather", LEFT, ROWS, axis=1, want=np.take_along_axis(LEFT, ROWS, 1)),
    case("gather", LEFT, PLACES[:1] // 5, axis=-2, want=LEFT[[[0, 1]], [[0, 1]]]),
    case(
        "gather_nd",
        np.array([[0, 1], [2, 3]]),
        np.array([[1, 1, 0], [0, 1, 0]], "int32"),
        want=np.array([2, 3, 0]),
    ),
    case("gather_nd", X, np.array([[0, 1], [1, 0]]), want=X[[0, 1], [1, 0]]),
    case(
        "gather_nd",
        np.arange(8).reshape(2, 2, 2),
        np.array([[1, 0]]),
        batch_dims=1,
        want=np.array([[2, 3], [4, 5]]),
    ),
    *(
        case(
            "scatter_elements",
            LEFT,
            np.array([[2, 2], [0, 1]]),
            np.array([[10, 20], [30, 40]], "float32"),
            axis=-1,
            reduction=ours,
            want=scattered(theirs),
        )
        for ours, theirs in (("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax"))
    ),
    case(
        "scatter_elements",
        LEFT,
        np.array([[0, 1], [0, 1]]),
        np.array([[10, 20], [30, 40]], "float32"),
        axis=1,
        want=scattered(None),
    ),
    case("argsort", LEFT, want=LEFT.argsort(-1, kind="stable").astype("int32")),
    case("argsort", LEFT, axis=0, is_ascend=False, dtype="int64", want=(-LEFT).argsort(0)),
    case("topk", LEFT, k=2, ret_type="values", want=-np.sort(-LEFT)[:, :2]),
    case(
        "topk",
        LEFT,
        k=1,
        axis=0,
        is_ascend=True,
        dtype="int64",
        want=(LEFT.min(0, keepdims=True), LEFT.argmin(0, keepdims=True)),
    ),
    case("topk", LEFT[:1], k=3, ret_type="indices", want=np.array([[2, 0, 1]], "int32")),
    case(
        "one_hot",
        PLACES,
        np.float32(5),
        np.float32(-1),
        depth=2,
        axis=-1,
        dtype="float32",
        want=np.where(PLACES[..., None] == np.arange(2), np.float32(5), np.float32(-1)),
    ),
    case(
        "one_hot",
        PLACES,
        np.float32(5),
        np.float32(-1),
        depth=6,
        axis=0,
        dtype="int8",
        want=np.where(np.arange(6)[:, None, None] == PLACES, 5, -1).astype("int8"),
    ),
    case("full", np.float32(2.75), shape=[2, 1], want=np.full((2, 1), 2.75, "float32")),
    case("full", np.float32(2.75), dtype="int32", shape=[3], want=np.full(3, 2, "int32")),
    case("full_like", Z, np.int8(3), want=np.full_like(Z, 3)),
    case("zeros", shape=[2, 2], dtype="int8", want=np.zeros((2, 2), "int8")),
    case("ones", shape=[], dtype="float32", want=np.ones((), "float32")),
    case("arange", *(relax.const(n, "int32") for n in (7, 0, -3)), dtype="int32", want=FALLING),
    case("arange", *(relax.const(n, "float32") for n in (0, 2, 0.5)), dtype="float32", want=HALF),
    case("shape_of", Z, dtype="int64", want=np.array([2, 1, 3])),
    case("shape_of", Z, want=np.array([2, 1, 3], "int32")),
]
MORE = np.arange(12, dtype="float32").reshape(4, 3)
SUMS = [
    case("einsum", [X, MORE], equation="bij,jk->bik", want=np.einsum("bij,jk->bik", X, MORE)),
    case("einsum", [X, MORE], equation="...ij,jk", want=np.einsum("...ij,jk", X, MORE)),
    case("einsum", [X[0], X[1]], equation="ij,ij->", want=np.einsum("ij,ij->", X[0], X[1])),
    case("einsum", [X], equation="ijk->kij", want=np.einsum("ijk->kij", X)),
    case("einsum", [MORE[:3]], equation="ii->i", want=np.einsum("ii->i", MORE[:3])),
    case("einsum", [Z[0, 0], Z[1]], equation="i,ji", want=np.einsum("i,ji", Z[0, 0], Z[1])),
]
SIGNED = np.array([[3.0, -1.0, 0.0], [0.5, 2.0, -7.0]], "float32")
GRID = np.arange(1, 13, dtype="int32").reshape(3, 4)
ERF = np.vectorize(math.erf)(SIGNED).astype("float32")
SOFT = np.exp(SIGNED) / np.exp(SIGNED).sum(0, keepdims=True)
FURTHER = [
    case("sort", SIGNED, axis=-1, want=np.sort(SIGNED, 1)),
    case("sort", GRID, axis=0, is_ascend=False, want=np.sort(GRID, 0)[::-1]),
    case("cumprod", GRID, axis=1, want=np.cumprod(GRID, 1, dtype="int32")),
    case("cumprod", SIGNED, want=np.cumprod(SIGNED)),
    case("atan2", SIGNED, np.float32(2.0), want=np.arctan2(SIGNED, np.float32(2.0))),
    case("slice_like", GRID, np.zeros((2, 3), "int8"), want=GRID[:2, :3]),
    case("slice_like", GRID, np.zeros((2, 3), "int8"), axes=[-1], want=GRID[:, :3]),
    case("slice_like", GRID, np.zeros(2, "int8"), want=GRID[:2]),
    case("cast_like", SIGNED, GRID, want=SIGNED.astype("int32")),
    case("ndarray_size", GRID, want=np.array(12, "int32")),
    case("ndarray_size", GRID, dtype="int64", want=np.array(12, "int64")),
    case(
        "nn.mirror_pad",
        GRID,
        pad_width=[[3, 1], [0, 2]],
        want=np.pad(GRID, [(3, 1), (0, 2)], "symmetric"),
    ),
    case(
        "nn.mirror_pad",
        GRID,
        pad_width=[[2, 1], [0, 3]],
        mode="REFLECT",
        want=np.pad(GRID, [(2, 1), (0, 3)], "reflect"),
    ),
    case("fast_exp", SIGNED, want=np.exp(SIGNED)),
    case("fast_erf", SIGNED, want=ERF),
    case("fast_tanh", SIGNED, want=np.tanh(SIGNED)),
    case("nn.fast_softmax", SIGNED, axis=0, want=SOFT),
    case("annotation.stop_fusion", SIGNED, want=SIGNED),
]
CASES = [*SHAPES, *PICKED, *SUMS, *FURTHER]


@pytest.mark.parametrize("made", CASES, ids=names(CASES))
def test_a_row_moves_what_numpy_does(made: Case) -> None:
    agree(made, results(CASES)[CASES.index(made)])
