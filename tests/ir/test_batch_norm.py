"""Batch normalization folded: IR in, IR out; and the same numbers as PyTorch on any layout."""

from __future__ import annotations

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

X = array(2, 3, 4, 4)
# gamma, beta, mean and variance for two channels, chosen so that float32 holds every product:
# with epsilon 0 the scale is gamma / sqrt(variance) = (2, 3), the shift (1, -4).
STATISTICS = ([4.0, 3.0], [3.0, -1.0], [1.0, 1.0], [4.0, 1.0])


def const(content: Any, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.asarray(content).astype(dtype), dtype)


def build(make: Any, dtype: str = "float32", **more: tuple[int, ...]) -> tvm.IRModule:
    """Make a module from a builder, X and further parameters, given by their shapes."""
    sizes = {"x": X.shape, **more}
    params = [relax.Var(name, relax.TensorType(size, dtype)) for name, size in sizes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = make(builder, *params)
            several = [builder.emit_output(one) for one in (made if type(made) is list else [made])]
        builder.emit_func_output(several[0] if len(several) == 1 else relax.Tuple(several))
    return builder.get()


def conv(b: Any, x: Any, weight: Any = None) -> Any:
    return b.emit(relax.op.nn.conv2d(x, const(array(2, 3, 1, 1)) if weight is None else weight))


def norm(b: Any, x: Any, channels: int, dtype: str = "float32", **attrs: Any) -> Any:
    rng = np.random.default_rng(channels)
    parts = [const(rng.uniform(0.5, 1.5, channels), dtype) for _ in range(4)]
    attrs = {"axis": 1, "epsilon": 1e-3, "training": False} | attrs
    return b.emit(b.emit(relax.op.nn.batch_norm(x, *parts, **attrs))[0])


def folded(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [FoldBatchNorm(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)


def check(make: Any, left: int = 0, tolerance: float = 1e-5, dtype: str = "float32") -> str:
    """Fold, compare both sides' numbers, and return the text that is left."""
    mod, x = build(make, dtype), X.astype(dtype)
    after = folded(mod)
    assert str(after.script()).count("R.nn.batch_norm") == left
    found, want = (plainly(one, x).astype("float64") for one in (after, mod))
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)
    return str(after.script())


def test_after_a_convolution_weights_and_a_bias_remain() -> None:
    w = array(2, 3, 1, 1)

    def before(b: Any, x: Any) -> Any:
        attrs = {"axis": 1, "epsilon": 0.0, "training": False}
        statistics = map(const, STATISTICS)
        return b.emit(b.emit(relax.op.nn.batch_norm(conv(b, x, const(w)), *statistics, **attrs))[0])

    def after(b: Any, x: Any) -> Any:
        scaled = const(w * np.reshape([2, 3], (2, 1, 1, 1)))
        return relax.op.add(conv(b, x, scaled), const(np.reshape([1.0, -4.0], (1, 2, 1, 1))))

    found = folded(build(before))
    tvm.ir.assert_structural_equal(found, build(after))
    tvm.ir.assert_structural_equal(folded(found), found)


def test_statistics_that_are_inputs_and_training_are_left_alone() -> None:
    def open_(b: Any, x: Any, *statistics: Any) -> Any:
        return b.emit(relax.op.nn.batch_norm(x, *statistics, axis=1, training=False))[0]

    inputs = build(open_, **dict.fromkeys("gbmv", (3,)))
    training = build(lambda b, x: norm(b, x, 3, training=True))
    for mod in (inputs, training):
        tvm.ir.assert_structural_equal(folded(mod), mod)


def test_weights_that_are_inputs_are_not_folded_into() -> None:
    mod = build(lambda b, x, w: norm(b, conv(b, x, w), 2), w=(2, 3, 1, 1))
    after = folded(mod)
    assert "R.multiply" in after.script()
    given = X, array(2, 3, 1, 1)
    np.testing.assert_allclose(plainly(after, *given), plainly(mod, *given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "attrs",
    [{"center": False}, {"scale": False}, {"axis": -3}, {"axis": 3, "epsilon": 0.1}],
    ids=str,
)
def test_attributes_of_the_normalization_count(attrs: dict[str, Any]) -> None:
    channels = X.shape[attrs.get("axis", 1)]
    text = check(lambda b, x: norm(b, x, channels, **attrs))
    # Without a convolution to fold into, a multiply and an add remain.
    assert (text.count("R.multiply"), text.count("R.add")) == (1, 1)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-2), ("float64", 1e-12)])
def test_other_dtypes(dtype: str, tolerance: float) -> None:
    weight = const(array(2, 3, 1, 1), dtype)
    text = check(
        lambda b, x: norm(b, conv(b, x, weight), 2, dtype), tolerance=tolerance, dtype=dtype
    )
    assert "R.multiply" not in text


def test_a_convolution_that_is_also_a_result_keeps_its_weights() -> None:
    def make(b: Any, x: Any) -> Any:
        c = conv(b, x)
        return [c, norm(b, c, 2)]

    first, _ = tvmlab.compile(build(make))(X)
    want = np.einsum("ncij,ocuv->noij", X, array(2, 3, 1, 1))
    np.testing.assert_allclose(first, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "into_weights"),
    [
        ((1, 2, 1, 1), True),
        ((2, 1, 1), True),
        ((1,), True),
        ((), True),
        ((1, 2, 4, 4), False),  # more than one number per channel
        ((2, 1, 1, 1), False),  # one number per image
        ((1, 2, 1, 1, 1), False),  # moves the channels to another axis
    ],
)
def test_a_bias_between_the_two(shape: tuple[int, ...], into_weights: bool) -> None:
    def make(b: Any, x: Any) -> Any:
        return norm(b, b.emit(relax.op.add(conv(b, x), const(array(*shape)))), 2)

    assert ("R.multiply" not in check(make)) is into_weights


def test_normalization_over_the_wrong_axis_of_a_convolution() -> None:
    assert "R.multiply" in check(lambda b, x: norm(b, conv(b, x), 4, axis=2))


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

    mod = build(make, x=x.shape)
    text = str(folded(mod).script())
    assert "R.nn.batch_norm" not in text
    assert "R.multiply" not in text
    result = tvmlab.compile(mod)(x)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
