"""Operators that are no contraction: each is scheduled, and PyTorch's numbers result."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from tvm import relax

from tests.schedule.kernels import Case, Op, wrong
from tests.short import examples

op = relax.op


def shapes(least: int, most: int, size: int = 20) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, size), min_size=least, max_size=most).map(tuple)


@st.composite
def poolings(draw: st.DrawFn) -> Op:
    kind = draw(st.sampled_from(("max", "average", "counted", "global", "adaptive")))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 40)), *draw(shapes(2, 2)))
    layout = draw(st.sampled_from(("NCHW", "NHWC")))
    last = layout == "NHWC"

    def peer(pool: Any) -> Any:
        return lambda x: pool(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) if last else pool(x)

    pixels = shape[2:]
    if last:
        shape = (shape[0], *shape[2:], shape[1])
    if kind in ("global", "adaptive"):
        out = (1, 1) if kind == "global" else draw(shapes(2, 2, 5))
        return Op(
            f"{layout} to {out}",
            (shape,),
            lambda x: op.nn.adaptive_avg_pool2d(x, out, layout),
            peer(lambda x: F.adaptive_avg_pool2d(x, out)),
        )
    kernel = draw(st.tuples(*(st.integers(1, min(5, size)) for size in pixels)))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    pads = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    ceil = draw(st.booleans())
    counted = kind == "counted"
    options = {"strides": strides, "padding": pads * 2, "ceil_mode": ceil, "layout": layout}
    label = f"{kind} {kernel} {options}"
    if kind == "max":
        return Op(
            label,
            (shape,),
            lambda x: op.nn.max_pool2d(x, kernel, **options),
            peer(lambda x: F.max_pool2d(x, kernel, strides, pads, ceil_mode=ceil)),
        )
    return Op(
        label,
        (shape,),
        lambda x: op.nn.avg_pool2d(x, kernel, **options, count_include_pad=counted),
        peer(lambda x: F.avg_pool2d(x, kernel, strides, pads, ceil, counted)),
    )


@st.composite
def reductions(draw: st.DrawFn) -> Op:
    shape = draw(shapes(1, 4, 35))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    keep = draw(st.booleans())
    name = draw(st.sampled_from(("mean", "sum", "amax")))
    ours = {"mean": op.mean, "sum": op.sum, "amax": op.max}[name]
    # Without signs, no sum comes near zero, where an error of rounding is large against it. Added
    # one after the other, the errors of n numbers walk about sqrt(n) steps away.
    rounding = float(np.finfo(np.float32).eps) * math.sqrt(math.prod(shape))
    return Op(
        f"{name} over {axes}, keepdims={keep}",
        (shape,),
        lambda x: ours(op.abs(x), axes, keep),
        lambda x: getattr(torch, name)(x.abs(), axes, keep),
        tolerance=max(1e-5, rounding),
    )


@st.composite
def normalizations(draw: st.DrawFn) -> Op:
    shape = draw(shapes(1, 4))
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        return Op(
            f"softmax over {axis}",
            (shape,),
            lambda x: op.nn.softmax(x, axis),
            lambda x: torch.softmax(x, axis),
        )
    many = draw(st.integers(1, len(shape)))
    axes = list(range(len(shape) - many, len(shape)))
    inner = shape[len(shape) - many :]
    return Op(
        f"layer norm over {axes}",
        (shape, inner, inner),
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes, 1e-5),
        lambda x, g, b: F.layer_norm(x, inner, g, b, 1e-5),
        tolerance=1e-4,
    )


@st.composite
def movements(draw: st.DrawFn) -> Op:
    shape = draw(shapes(1, 4))
    rank = len(shape)
    kind = draw(st.sampled_from(("add", "transpose", "reshape", "concat", "pad", "slice", "gelu")))
    if kind == "add":
        other = tuple(draw(st.sampled_from((size, 1))) for size in shape)
        return Op(
            "add and relu",
            (shape, other),
            lambda x, y: op.nn.relu(op.add(x, y)),
            lambda x, y: torch.relu(x + y),
        )
    if kind == "transpose":
        order = draw(st.permutations(range(rank)))
        return Op(
            f"transpose {order}",
            (shape,),
            lambda x: op.permute_dims(x, order),
            lambda x: x.permute(*order),
        )
    if kind == "reshape":
        to = (int(np.prod(shape[: rank // 2])), -1)
        return Op(f"reshape {to}", (shape,), lambda x: op.reshape(x, to), lambda x: x.reshape(to))
    if kind == "concat":
        axis = draw(st.integers(0, rank - 1))
        sizes = draw(st.lists(st.integers(1, 20), min_size=2, max_size=4))
        parts = tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)
        return Op(
            f"concat {axis}",
            parts,
            lambda *x: op.concat(list(x), axis),
            lambda *x: torch.cat(x, axis),
        )
    if kind == "pad":
        before, after = (
            draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank)) for _ in range(2)
        )
        widths = [w for pair in zip(before, after, strict=True) for w in pair]
        backwards = [w for pair in zip(before[::-1], after[::-1], strict=True) for w in pair]
        return Op(
            f"pad {widths}",
            (shape,),
            lambda x: op.nn.pad(x, widths, "constant", 1.5),
            lambda x: F.pad(x, backwards, value=1.5),
        )
    if kind == "slice":
        begin = [draw(st.integers(0, size - 1)) for size in shape]
        step = [draw(st.integers(1, 3)) for _ in shape]
        return Op(
            f"slice {begin}::{step}",
            (shape,),
            lambda x: op.strided_slice(x, list(range(rank)), begin, list(shape), step),
            lambda x: x[tuple(slice(b, None, s) for b, s in zip(begin, step, strict=True))],
        )
    return Op("gelu", (shape,), op.nn.gelu, F.gelu)


def plus_one(case: Op) -> Op:
    """Let an addition follow, which is fused into the operator's function."""
    one = relax.const(np.float32(1))
    return replace(
        case,
        label=f"{case.label}, plus 1",
        build=lambda *x: op.add(case.build(*x), one),
        peer=lambda *x: case.peer(*x) + 1,
    )


def many(cases: st.SearchStrategy[Op]) -> st.SearchStrategy[list[Op]]:
    return st.lists(cases | cases.map(plus_one), min_size=10, max_size=10)


@settings(max_examples=examples(6))
@given(cases=many(poolings()))
def test_pooling(cases: list[Case]) -> None:
    assert not wrong(cases)


@settings(max_examples=examples(6))
@given(cases=many(reductions()))
def test_reductions(cases: list[Case]) -> None:
    assert not wrong(cases)


@settings(max_examples=examples(4))
@given(cases=many(normalizations()))
def test_normalizations(cases: list[Case]) -> None:
    assert not wrong(cases)


@settings(max_examples=examples(8))
@given(cases=many(movements()))
def test_elementwise_arithmetic_and_data_movement(cases: list[Case]) -> None:
    assert not wrong(cases)
