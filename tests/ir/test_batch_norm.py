"""Batch normalization folded: IR in, IR out; and the same numbers as PyTorch on any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.oracles.models import array, plainly
from tvmlab.ir.batch_norm import FoldBatchNorm

# gamma, beta, mean and variance for two channels, chosen so that float32 holds every product:
# with epsilon 0 the scale is gamma / sqrt(variance) = (2, 3), the shift (1, -4).
STATISTICS = ([4.0, 3.0], [3.0, -1.0], [1.0, 1.0], [4.0, 1.0])


def const(content: Any, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.asarray(content).astype(dtype), dtype)


def bound(mod: tvm.IRModule, **constants: Any) -> tvm.IRModule:
    """Turn parameters into constants, as an importer gives them."""
    values = {name: np.asarray(value, "float32") for name, value in constants.items()}
    return relax.transform.BindParams("main", values)(mod)


def with_statistics(mod: tvm.IRModule, **constants: Any) -> tvm.IRModule:
    return bound(mod, **dict(zip(("g", "b", "m", "v"), STATISTICS, strict=True)), **constants)


def folded(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [FoldBatchNorm(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)


def normalizations(mod: tvm.IRModule) -> int:
    return str(mod.script()).count("R.nn.batch_norm")


def conv_then(*more: tuple[str, tuple[int, ...]], last: Callable[..., Any]) -> tvm.IRModule:
    """Make a module of a convolution and what `last` makes of it and of further parameters."""
    sizes = (("x", (1, 2, 4, 4)), ("w", (2, 2, 1, 1)), *more)
    x, w, *rest = params = [relax.Var(n, relax.TensorType(size, "float32")) for n, size in sizes]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = last(builder, builder.emit(relax.op.nn.conv2d(x, w)), *rest)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def normalized(builder: Any, data: Any, *statistics: Any) -> Any:
    attrs = {"axis": 1, "epsilon": 0.0, "training": False}
    return builder.emit(relax.op.nn.batch_norm(data, *statistics, **attrs))[0]


CONV_THEN_NORM = conv_then(*((name, (2,)) for name in "gbmv"), last=normalized)
CONV_THEN_ADD = conv_then(("s", (1, 2, 1, 1)), last=lambda _, data, s: relax.op.add(data, s))


def test_after_a_convolution_weights_and_a_bias_remain() -> None:
    w = array(2, 2, 1, 1)
    after = folded(with_statistics(CONV_THEN_NORM, w=w))
    scaled = w * np.reshape([2, 3], (2, 1, 1, 1))
    shift = np.reshape([1.0, -4.0], (1, 2, 1, 1))
    tvm.ir.assert_structural_equal(after, bound(CONV_THEN_ADD, w=scaled, s=shift))
    tvm.ir.assert_structural_equal(folded(after), after)


def test_statistics_that_are_inputs_are_left_alone() -> None:
    tvm.ir.assert_structural_equal(folded(CONV_THEN_NORM), CONV_THEN_NORM)


def test_weights_that_are_inputs_are_not_folded_into() -> None:
    mod = with_statistics(CONV_THEN_NORM)
    after = folded(mod)
    assert normalizations(after) == 0
    assert "R.multiply" in after.script()
    x, w = array(1, 2, 4, 4), array(2, 2, 1, 1)
    np.testing.assert_allclose(plainly(after, x, w), plainly(mod, x, w), rtol=1e-5, atol=1e-5)


# Built in Python, where attributes vary.


def build(make: Any, shape: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(make(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def norm(builder: Any, x: Any, channels: int, dtype: str = "float32", **attrs: Any) -> Any:
    rng = np.random.default_rng(channels)
    parts = [const(rng.uniform(0.5, 1.5, channels), dtype) for _ in range(4)]
    attrs = {"axis": 1, "epsilon": 1e-3, "training": False} | attrs
    return builder.emit(relax.op.nn.batch_norm(x, *parts, **attrs))


def check(mod: tvm.IRModule, x: np.ndarray, left: int = 0, tolerance: float = 1e-5) -> str:
    """Fold, compare both sides' numbers, and return the text that is left."""
    after = folded(mod)
    assert normalizations(after) == left
    np.testing.assert_allclose(
        plainly(after, x).astype("float64"),
        plainly(mod, x).astype("float64"),
        rtol=tolerance,
        atol=tolerance,
    )
    return str(after.script())


X = array(2, 3, 4, 4)


@pytest.mark.parametrize(
    "attrs",
    [{"center": False}, {"scale": False}, {"axis": -3}, {"axis": 3, "epsilon": 0.1}],
    ids=str,
)
def test_attributes_of_the_normalization_count(attrs: dict[str, Any]) -> None:
    channels = X.shape[attrs.get("axis", 1)]
    mod = build(lambda b, x: b.emit(norm(b, x, channels, **attrs)[0]), X.shape)
    text = check(mod, X)  # no convolution to fold into: a multiply and an add remain
    assert (text.count("R.multiply"), text.count("R.add")) == (1, 1)


def test_training_is_left_alone() -> None:
    mod = build(lambda b, x: b.emit(norm(b, x, 3, training=True)[0]), X.shape)
    tvm.ir.assert_structural_equal(folded(mod), mod)


def test_running_statistics_that_are_used_stay() -> None:
    def make(b: Any, x: Any) -> Any:
        n = norm(b, x, 3)
        return b.emit(relax.op.add(n[0], relax.op.reshape(n[1], (1, 3, 1, 1))))

    check(build(make, X.shape), X, left=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-2), ("float64", 1e-12)])
def test_other_dtypes(dtype: str, tolerance: float) -> None:
    def make(b: Any, x: Any) -> Any:
        c = b.emit(relax.op.nn.conv2d(x, const(array(2, 3, 1, 1), dtype)))
        return b.emit(norm(b, c, 2, dtype)[0])

    text = check(build(make, X.shape, dtype), X.astype(dtype), tolerance=tolerance)
    assert "R.multiply" not in text


def conv(b: Any, x: Any) -> Any:
    return b.emit(relax.op.nn.conv2d(x, const(array(2, 3, 1, 1))))


def test_a_convolution_with_a_second_user_keeps_its_weights() -> None:
    def make(b: Any, x: Any) -> Any:
        c = conv(b, x)
        return b.emit(relax.op.add(norm(b, c, 2)[0], c))

    assert "R.multiply" in check(build(make, X.shape), X)


def test_a_convolution_that_is_also_a_result_keeps_its_weights() -> None:
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            c = builder.emit_output(conv(builder, x))
            out = builder.emit_output(norm(builder, c, 2)[0])
        builder.emit_func_output(relax.Tuple([c, out]))
    mod = builder.get()
    first, _ = tvmlab.compile(mod)(X)
    np.testing.assert_allclose(
        first, np.einsum("ncij,ocuv->noij", X, array(2, 3, 1, 1)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("shape", "into_weights"),
    [
        ((1, 2, 1, 1), True),
        ((2, 1, 1), True),
        ((1,), True),
        ((), True),
        ((1, 2, 4, 4), False),  # more than one number a channel
        ((2, 1, 1, 1), False),  # a number a picture
        ((1, 2, 1, 1, 1), False),  # moves the channels to another axis
    ],
)
def test_a_bias_between_the_two(shape: tuple[int, ...], into_weights: bool) -> None:
    def make(b: Any, x: Any) -> Any:
        biased = b.emit(relax.op.add(conv(b, x), const(array(*shape))))
        return b.emit(norm(b, biased, 2)[0])

    assert ("R.multiply" not in check(build(make, X.shape), X)) is into_weights


def test_normalization_over_the_wrong_axis_of_a_convolution() -> None:
    assert "R.multiply" in check(
        build(lambda b, x: b.emit(norm(b, conv(b, x), 4, axis=2)[0]), X.shape), X
    )


# Against PyTorch, over attributes and layouts.


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    groups = draw(st.sampled_from([1, 2]))
    return {
        "rank": draw(st.sampled_from([1, 2])),
        "channels_last": draw(st.booleans()),
        "groups": groups,
        "inputs": groups * draw(st.integers(1, 2)),
        "outputs": groups * draw(st.integers(1, 3)),
        "kernel": draw(st.integers(1, 3)),
        "stride": draw(st.integers(1, 2)),
        "padding": draw(st.integers(0, 1)),
        "bias": draw(st.booleans()),
    }


@settings(max_examples=10)
@given(convolutions())
def test_convolutions_agree_with_pytorch(case: dict[str, Any]) -> None:
    rank, last = case["rank"], case["channels_last"]
    torch.manual_seed(0)
    ours = relax.op.nn.conv1d if rank == 1 else relax.op.nn.conv2d
    layer = torch.nn.Conv1d if rank == 1 else torch.nn.Conv2d
    normalize = torch.nn.BatchNorm1d if rank == 1 else torch.nn.BatchNorm2d
    module = layer(
        *(case["inputs"], case["outputs"], case["kernel"], case["stride"], case["padding"]),
        groups=case["groups"],
        bias=case["bias"],
    )
    after = normalize(case["outputs"])
    parts = (after.weight, after.bias, after.running_mean, after.running_var)
    for tensor in parts:
        torch.nn.init.uniform_(tensor, 0.5, 1.5)
    x = array(2, case["inputs"], *[5] * rank)
    with torch.no_grad():
        expected = torch.nn.Sequential(module, after).eval()(torch.from_numpy(x)).numpy()

    axis, kernel = 1, module.weight.detach().numpy()
    data_layout, kernel_layout = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW")}[rank]
    if last:
        axis, to_last = rank + 1, (0, *range(2, rank + 2), 1)
        x, expected = x.transpose(to_last), expected.transpose(to_last)
        kernel = kernel.transpose((*range(2, rank + 2), 1, 0))
        data_layout, kernel_layout = {1: ("NWC", "WIO"), 2: ("NHWC", "HWIO")}[rank]

    def make(b: Any, var: Any) -> Any:
        out = b.emit(
            ours(
                *(var, const(kernel), case["stride"], case["padding"]),
                groups=case["groups"],
                data_layout=data_layout,
                kernel_layout=kernel_layout,
            )
        )
        if module.bias is not None:
            shape = [1] * (rank + 2)
            shape[axis] = -1
            out = b.emit(relax.op.add(out, const(module.bias.detach().numpy().reshape(shape))))
        statistics = [const(part.detach().numpy()) for part in parts]
        attrs = {"axis": axis, "epsilon": after.eps, "training": False}
        return b.emit(b.emit(relax.op.nn.batch_norm(out, *statistics, **attrs))[0])

    mod = build(make, x.shape)
    text = str(folded(mod).script())
    assert "R.nn.batch_norm" not in text
    assert "R.multiply" not in text
    result = tvmlab.compile(mod)(x)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
