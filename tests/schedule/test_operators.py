"""Operators that are no contraction: each is scheduled, and PyTorch's numbers result."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from tvm import relax

import tvmlab
from tests.oracles.models import array
from tests.schedule.kernels import Case, Op, module, wrong
from tests.short import examples
from tvmlab.schedule.layout import channels_last

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
    shape = draw(shapes(1, 4, 40))
    kind = draw(st.sampled_from(("softmax", "layer", "rms", "channel")))
    if kind == "softmax":
        axis = draw(st.sampled_from((len(shape) - 1, 0)))
        return Op(
            f"softmax over {axis}",
            (shape,),
            lambda x: op.nn.softmax(x * relax.const(np.float32(30)), axis),
            lambda x: torch.softmax(x * 30, axis),
        )
    if kind == "channel":
        return draw(channel_normalizations())
    if kind == "rms":
        shape = (2, *shape)  # TVM's own loops for all axes do not compile
    many = draw(st.integers(1, len(shape) - (kind == "rms")))
    axes = list(range(len(shape) - many, len(shape)))
    inner = shape[len(shape) - many :]
    if kind == "rms":
        return Op(
            f"RMS norm over {axes}",
            (shape, inner),
            lambda x, g: op.nn.rms_norm(x, g, axes, 1e-5),
            lambda x, g: F.rms_norm(x, inner, g, 1e-5),
        )
    return Op(
        f"layer norm over {axes}",
        (shape, inner, inner),
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes, 1e-5),
        lambda x, g, b: F.layer_norm(x, inner, g, b, 1e-5),
        tolerance=1e-4,
    )


@st.composite
def channel_normalizations(draw: st.DrawFn) -> Op:
    groups, each = draw(st.sampled_from(((1, 8), (4, 1), (4, 4), (2, 16), (3, 5))))
    channels, last, by_group = groups * each, draw(st.booleans()), draw(st.booleans())
    batch, pixels = draw(st.integers(1, 2)), draw(shapes(1, 3, 9))
    shape = (batch, *pixels, channels) if last else (batch, channels, *pixels)
    axis = len(pixels) + 1 if last else 1
    axes = [i for i in range(1, len(shape)) if i != axis]
    # Of one number, the spread is zero, and the result noise.
    by_group = by_group or math.prod(pixels) == 1

    def ours(x: relax.Var, g: relax.Var, b: relax.Var) -> relax.Expr:
        if by_group:
            return op.nn.group_norm(x, g, b, groups, axis, axes, 1e-2)
        return op.nn.instance_norm(x, g, b, axis, axes, 1e-2)

    def peer(x: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        moved = x.movedim(axis, 1)
        made = F.group_norm(moved, groups if by_group else channels, g, b, 1e-2)
        return made.movedim(1, axis)

    name = f"group norm of {groups}" if by_group else "instance norm"
    label, weights = f"{name}, channel axis {axis}", (channels,)
    return Op(label, (shape, weights, weights), ours, peer, tolerance=1e-4)


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> Op:
    rank = draw(st.sampled_from((1, 2, 2)))
    groups, size = draw(st.sampled_from((1, 1, 2, 4))), st.integers(1, 5)
    kernel, strides = (tuple(draw(size) for _ in range(rank)) for _ in range(2))
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    extra = tuple(draw(st.integers(0, s - 1)) for s in strides)
    dilation = (draw(st.sampled_from((1, 1, 1, 2))), 1)[:rank]
    shape = (draw(st.integers(1, 2)), 8, *(draw(st.integers(6, 9)) for _ in range(rank)))
    weight = (8, draw(st.sampled_from((1, 3, 16))), *kernel)
    options = {"strides": strides, "padding": pads * 2, "output_padding": extra}
    options |= {"dilation": dilation, "groups": groups}
    ours, theirs = getattr(op.nn, f"conv{rank}d_transpose"), getattr(F, f"conv_transpose{rank}d")
    return Op(
        f"transposed convolution, {options}",
        (shape, weight),
        lambda x, w: ours(x, w, **options),
        lambda x, w: theirs(x, w, None, strides, pads, extra, groups, dilation),
        constants=draw(st.sampled_from(((1,), (1,), ()))),
    )


@st.composite
def other_convolutions(draw: st.DrawFn) -> Op:
    """Convolutions over one axis, or three."""
    rank = draw(st.sampled_from((1, 3)))
    groups = draw(st.sampled_from((1, 1, 2, 8)))
    kernel, strides, dilation = (
        tuple(draw(st.integers(1, most)) for _ in range(rank)) for most in (3, 2, 2)
    )
    pads = tuple(draw(st.integers(0, 2)) for _ in range(rank))
    shape = (draw(st.integers(1, 2)), 8, *(draw(st.integers(5, 9)) for _ in range(rank)))
    weight = (draw(st.sampled_from((8, 24))), 8 // groups, *kernel)
    options = {"strides": strides, "dilation": dilation, "groups": groups}
    conv = getattr(op.nn, f"conv{rank}d")
    torchs = getattr(F, f"conv{rank}d")
    return Op(
        f"convolution, {options}, padding {pads}",
        (shape, weight, (weight[0], *[1] * rank)),
        lambda x, w, b: op.nn.relu(op.add(conv(x, w, padding=pads * 2, **options), b)),
        lambda x, w, b: torch.relu(torchs(x, w, b.flatten(), strides, pads, dilation, groups)),
        constants=(1, 2),
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
        sizes = draw(st.lists(st.sampled_from((1, 3, 8, 16)), min_size=2, max_size=9))
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


@settings(max_examples=examples(4))
@given(cases=many(transposed_convolutions()))
def test_transposed_convolutions(cases: list[Case]) -> None:
    assert not wrong(cases)


def test_a_variable_bound_to_a_transpose_keeps_its_value() -> None:
    weight, builder = array(4, 4, 1, 1), relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 5, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            convolved = builder.emit(op.nn.conv2d(x, relax.const(weight)))
            transposed = builder.emit(op.permute_dims(convolved, [0, 2, 3, 1]))
            alias = relax.DataflowVar("alias", transposed.ty)
            builder.emit_normalized(relax.VarBinding(alias, transposed))
            result = builder.emit_output(op.add(alias, alias))
        builder.emit_func_output(result)
    run = tvmlab.compile(channels_last()(builder.get()))
    data = array(1, 4, 5, 6)
    expected = 2 * F.conv2d(*map(torch.from_numpy, (data, weight))).permute(0, 2, 3, 1)
    np.testing.assert_allclose(run(data), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
def test_operators_before_a_1x1_convolution_are_computed_per_tile(batch: int) -> None:
    weight, scale = array(32, 1, 1, 16), array(16, seed=1)

    def ours(x: relax.Var) -> relax.Expr:
        y = op.nn.relu(op.multiply(x, relax.const(scale)))
        options = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        return op.nn.conv2d(y, relax.const(weight), **options)

    def peer(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x * torch.from_numpy(scale))
        return y @ torch.from_numpy(weight.reshape(32, 16)).T

    case = Op("convolution", ((batch, 14, 14, 16),), ours, peer)
    assert not wrong([case])
    run = tvmlab.compile(module([case])[0])
    assert len(run.summary().kernels) == 1
    rows = [int(n) for n in re.findall(r"for ax0 in range\(T.int64\((\d+)\)", run.tir().script())]
    assert rows
    assert max(rows) < 14 * 14


@settings(max_examples=examples(4))
@given(cases=many(other_convolutions()))
def test_convolutions_over_one_axis_or_three(cases: list[Case]) -> None:
    assert not wrong(cases)


def test_small_groups_of_a_volume_stay_as_they_are() -> None:
    """Their channels would fill a small part of a vector."""
    weight = relax.const(array(16, 1, 3, 3, 3))

    def ours(x: relax.Var) -> relax.Expr:
        return op.nn.conv3d(x, weight, padding=1, groups=16)

    mod, _ = module([Op("depthwise", ((1, 16, 4, 6, 6),), ours, lambda x: x)])
    assert tvmlab.compile(mod).summary().transposes == 0


@pytest.mark.parametrize("axes", [1, 3])
def test_no_transpose_stays_between_convolutions(axes: int) -> None:
    weights = [relax.const(array(8, 8, *[3] * axes, seed=i)) for i in range(2)]
    bias = relax.const(array(8, *[1] * axes))
    conv = op.nn.conv1d if axes == 1 else op.nn.conv3d

    def ours(x: relax.Var) -> relax.Expr:
        for weight in weights:
            x = op.nn.relu(op.add(conv(x, weight, padding=1), bias))
        return x

    mod, _ = module([Op("two", ((1, 8, *[6] * axes),), ours, lambda x: x)])
    summary = tvmlab.compile(mod).summary()
    assert summary.transposes == 2  # of the input and of the result
    assert sum(one.calls for one in summary.kernels if one.rule == "Contraction") == 2


def test_an_activation_behind_a_reshape_is_fused_into_the_product() -> None:
    """Two images of three rows become a matrix, and then images again."""
    weight, shape = array(8, 16, seed=1), [2, 3, 16]

    def ours(x: relax.Var, rest: relax.Var) -> relax.Expr:
        product = op.matmul(op.reshape(x, [6, 8]), relax.const(weight))
        made = op.nn.gelu(op.add(op.reshape(product, shape), rest))
        return op.reshape(made, [6, 16])

    def peer(x: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return F.gelu(x.reshape(6, 8) @ torch.from_numpy(weight) + rest.reshape(6, 16))

    case = Op("product", ((2, 3, 8), (2, 3, 16)), ours, peer)
    assert not wrong([case])
    names = {kernel.name for kernel in tvmlab.compile(module([case])[0]).summary().kernels}
    assert "fused_matmul_add_gelu" in names


def test_a_product_that_is_broadcast_stays_where_it_is() -> None:
    weight = array(8, 16, seed=1)

    def ours(x: relax.Var, rest: relax.Var) -> relax.Expr:
        return op.add(op.reshape(op.matmul(x, relax.const(weight)), [1, 3, 16]), rest)

    def peer(x: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return (x @ torch.from_numpy(weight)).reshape(1, 3, 16) + rest

    assert not wrong([Op("product", ((3, 8), (2, 3, 16)), ours, peer)])


def test_groups_between_reshapes_are_normalized_as_one_operator() -> None:
    """As PyTorch's exporter to ONNX writes group normalization."""
    weights = [relax.const(array(2, seed=seed)) for seed in (1, 2)]

    def ours(x: relax.Var) -> relax.Expr:
        groups = op.reshape(x, [3, 2, 80])
        return op.reshape(op.nn.instance_norm(groups, *weights, 1, [2], 1e-5), [3, 8, 4, 5])

    def peer(x: torch.Tensor) -> torch.Tensor:
        return F.group_norm(
            x, 2, *(torch.from_numpy(one.value.numpy()).repeat_interleave(4) for one in weights)
        )

    case = Op("groups", ((3, 8, 4, 5),), ours, peer)
    assert not wrong([case])
    names = [kernel.name for kernel in tvmlab.compile(module([case])[0]).summary().kernels]
    assert any("group_norm" in name for name in names)


def test_softmax_has_no_subnormal_results() -> None:
    """A product with a subnormal number takes a hundred times as long."""
    x = np.linspace(-110, 0, 4 * 100, dtype="float32").reshape(4, 100)
    mod, _ = module([Op("softmax", (x.shape,), op.nn.softmax, lambda x: x)])
    found, wanted = tvmlab.compile(mod)(x), torch.softmax(torch.from_numpy(x), 1).numpy()
    tiny = np.finfo("float32").tiny
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=tiny)
    assert not ((found > 0) & (found < tiny)).any()
    far = np.array([[0, -50, -86, -100]], "float32")
    mod, _ = module([Op("far", (far.shape,), op.nn.softmax, lambda x: x)])
    results = np.asarray(tvmlab.compile(mod)(far))[0]
    assert (results[:2] > 0).all()
    assert results[3] == 0


@pytest.mark.parametrize("shape", [(2, 64), (1, 8, 8, 16)])
def test_a_large_mean_costs_a_normalization_no_digits(shape: tuple[int, ...]) -> None:
    """A mean of squares less the square of a mean would have no digit left."""
    last, inner = len(shape) - 1, tuple(range(1, len(shape) - 1))
    weights = [relax.const(np.full(shape[last], value, "float32")) for value in (1, 0)]

    def ours(x: relax.Var) -> relax.Expr:
        if not inner:
            return op.nn.layer_norm(x, *weights, [last], 1e-5)
        return op.nn.instance_norm(x, *weights, last, list(inner), 1e-5)

    x = array(*shape) + np.float32(1000)
    around = x.astype("float64")
    around -= around.mean(inner or last, keepdims=True)
    wanted = around / np.sqrt((around**2).mean(inner or last, keepdims=True) + 1e-5)
    mod, _ = module([Op("large mean", (shape,), ours, lambda x: x)])
    np.testing.assert_allclose(tvmlab.compile(mod)(x), wanted, atol=1e-3)


@settings(max_examples=examples(8))
@given(cases=many(movements()))
def test_elementwise_arithmetic_and_data_movement(cases: list[Case]) -> None:
    assert not wrong(cases)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("shape", [(6, 512), (1, 3, 5, 128), (7, 320)])
def test_each_row_is_reduced_once_in_vectors(shape: tuple[int, ...], dtype: str) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.max(x, [-1])))
    run = tvmlab.compile(builder.get(), {"kind": "llvm", "mcpu": "haswell"})
    given = (array(*shape) * 100).astype(dtype)
    np.testing.assert_array_equal(run(given), given.max(-1))
    loops = str(run.tir())
    # A guard would mean that a task also computes rows of other tasks.
    assert "T.vectorized" in loops
    assert "T.where" not in loops
