"""Winograd's way to compute 3x3 convolutions: when it is taken, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.oracles.models import array
from tests.schedule.convolutions import Conv
from tests.schedule.dot import QuantizedConv, Requantized, points
from tests.schedule.kernels import module, wrong
from tests.short import examples
from tvmlab.schedule import Squares, winograd
from tvmlab.support.host import missing_features

CONV = Conv(1, (28, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 128, 128, ("bias", "relu"))


def rules(run: tvmlab.Executable) -> set[str]:
    return {kernel.rule for kernel in run.summary().kernels}


def test_only_the_last_step_takes_it() -> None:
    mod, inputs = module([replace(CONV, channels_last=True)])
    before, after = (tvmlab.compile(mod, schedule=step) for step in ("epilogue", "winograd"))
    assert rules(before) == {"Contraction"}
    assert rules(after) == {"WinogradTransform", "Contraction"}
    names = [kernel.name for kernel in after.summary().kernels]
    assert [name.partition("winograd_")[2][:6] for name in names] == ["input", "produc", "output"]
    np.testing.assert_allclose(after(*inputs), before(*inputs), rtol=1e-3, atol=1e-3)


@st.composite
def squares(draw: st.DrawFn) -> Conv:
    """3x3 convolutions with whole vectors of channels, most of which are computed in squares."""
    channels = st.integers(2, 8).map(lambda many: 16 * many)
    return Conv(
        batch=draw(st.integers(1, 3)),
        size=draw(st.tuples(*(st.integers(3, 40),) * 2)),
        kernel=(3, 3),
        strides=(1, 1),
        pads=draw(st.tuples(*(st.integers(0, 2),) * 4)),
        dilation=(1, 1),
        groups=1,
        inputs=draw(channels),
        outputs=draw(channels),
        epilogue=draw(st.sampled_from([(), ("bias", "relu"), ("bias", "residual", "relu")])),
        channels_last=draw(st.booleans()),
    )


class Either(Conv):
    """A convolution that any rule may take."""

    kernels = rule = ""


@settings(max_examples=examples(4))
@given(st.lists(squares(), min_size=5, max_size=5))
def test_random_convolutions_equal_pytorchs(convs: list[Conv]) -> None:
    assert not wrong([Either(**vars(conv)) for conv in convs])


#: By the size of squares: the largest error against float64, relative to the largest result.
BOUNDS = {2: 5e-6, 4: 5e-5}


@pytest.mark.parametrize("size", BOUNDS)
@pytest.mark.parametrize("channels", [16, 256, 2048])
def test_the_error_is_within_what_compile_states(
    size: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On normal numbers, without the negative ones, with a mean of 1, and with long tails."""
    assert tvmlab.compile.__doc__
    assert f"{BOUNDS[size]:.0e}".replace("e-0", "e-") in tvmlab.compile.__doc__
    monkeypatch.setattr(Squares, "choose", lambda *given: Squares(size, *given[:2], *given[3:6]))
    x, weight = array(4, 14, 14, channels), array(16, 3, 3, channels, seed=1)
    x = np.concatenate([x[:1], np.maximum(x[1:2], 0), x[2:3] + 1, x[3:] ** 3])
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        call = relax.op.nn.conv2d(data, relax.const(weight), padding=1, **layouts)
        builder.emit_func_output(builder.emit(call))
    run = tvmlab.compile(builder.get(), schedule="winograd")
    assert "WinogradTransform" in rules(run)
    wide = (torch.from_numpy(a.astype("float64")).permute(0, 3, 1, 2) for a in (x, weight))
    exact = torch.nn.functional.conv2d(*wide, padding=1).permute(0, 2, 3, 1).numpy()
    error, largest = (np.abs(a).max(axis=(1, 2, 3)) for a in (run(x) - exact, exact))
    assert (error / largest).max() <= BOUNDS[size]


#: A processor that multiplies integers in pairs of 16 bits.
PAIRS = tvm.target.Target(
    {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}
)
RUNS = pytest.mark.skipif(bool(missing_features(PAIRS)), reason="runs on x86-64 with AVX2 only")


def only(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the other size of squares."""
    for other in winograd._DATA.keys() - {size}:
        monkeypatch.delitem(winograd._DATA, other)


class EitherQuantized(QuantizedConv):
    """A quantized convolution that any rule may take."""

    kernels = rule = ""


@st.composite
def quantized_squares(draw: st.DrawFn) -> EitherQuantized:
    """Quantized convolutions, most of which are computed in squares."""
    sizes = vars(draw(squares()))
    of_float = ("epilogue", "constant", "channels_last", "tolerance")
    geometry = {name: size for name, size in sizes.items() if name not in of_float}
    return EitherQuantized(**geometry, **draw(points(geometry["outputs"])))


@RUNS
@settings(max_examples=examples(4))
@given(st.lists(quantized_squares(), min_size=5, max_size=5))
def test_quantized_convolutions_are_exact(convs: list[EitherQuantized]) -> None:
    assert not wrong(convs, target=PAIRS)


#: Twelve by twelve pixels of 64 channels, to 32 channels.
SQUARES = (1, (12, 12), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 64, 32)


class Greatest(QuantizedConv):
    """In squares of 4x4, each product at one point is the greatest: from 8 channels on, sums wrap.

    In squares of 2x2, no sum of so few channels wraps. The weights' zero point gives their sign.
    """

    def contents(self) -> dict[str, np.ndarray]:
        y, x = (np.arange(size) % 4 < 2 for size in self.size)
        data = np.where(y[:, None, None] & x[:, None], 255, 0).astype("uint8")
        shape = (self.outputs, *self.kernel, self.inputs)
        number = 227 if self.dtypes[1] == "uint8" else 127
        return {
            "data": np.broadcast_to(data, (1, *self.size, self.inputs)).copy(),
            "weight": np.full(shape, number, self.dtypes[1]),
        }


@RUNS
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("dtype", "zeros", "inputs", "taken"),
    [
        ("int8", (0, 0), 64, True),
        ("int8", (0, 0), 128, False),
        ("int8", (255, 0), 64, True),
        ("uint8", (0, 254), 64, True),  # differences of -27
        ("uint8", (0, 0), 64, True),  # 227: the greatest whose transformed weights fit into int16
        ("uint8", (0, 0), 80, False),
    ],
)
def test_sums_that_wrap(
    size: int,
    dtype: str,
    zeros: tuple[int, int],
    inputs: int,
    taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With too many channels, a sum can exceed 2^25, so that 4x4 squares are not `taken`."""
    only(size, monkeypatch)
    case = Greatest(("uint8", dtype), zeros, *SQUARES[:-2], inputs, 32)
    mod, given_ = module([case])
    run = tvmlab.compile(mod, target=PAIRS)
    assert ("WinogradTransform" in rules(run)) == (taken or size == 2)
    np.testing.assert_array_equal(run(*given_), case.reference())


class Negative(Greatest):
    """The sign of each sum, which a compiler must not derive from a product that wraps."""

    def relax(self, builder: relax.BlockBuilder, values: dict[str, Any]) -> relax.Expr:
        sums = builder.emit(super().relax(builder, values))
        return relax.op.less(sums, relax.const(0, "int32"))

    def reference(self) -> np.ndarray:
        return super().reference() < 0


class Mixed(Requantized):
    """Random numbers, with a bias and a requantization, in the transform's function."""

    kernels, rule = "winograd_output_add_requantize", "WinogradTransform"


@RUNS
@pytest.mark.parametrize("size", [2, 4])
def test_what_follows_the_transform(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    only(size, monkeypatch)
    dtypes = ("uint8", "int8")
    assert not wrong([Mixed(dtypes, (7, 0), *SQUARES)], target=PAIRS)
    case = Negative(dtypes, (0, 0), *SQUARES)
    sums = Greatest.reference(case)
    assert int(sums.max()) * 576 > np.iinfo("int32").max  # wraps before the division for 4x4
    mod, given_ = module([case])
    run = tvmlab.compile(mod, target=PAIRS)
    assert "WinogradTransform" in rules(run)
    np.testing.assert_array_equal(run(*given_), case.reference())
