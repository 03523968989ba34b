"""Layouts pass through quantized operators: no transposes between, and the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.qnn.graphs import scale, zero
from tests.qnn.run import run
from tvmlab.qnn import op
from tvmlab.schedule import channels_last

DESIRED = {"relax.qnn.conv2d": ["NHWC", "OHWI"]}
SHAPE = (2, 4, 6, 6)
RNG = np.random.default_rng(0)
Build = Callable[[Any], relax.Expr]


def conv(x: relax.Expr, outputs: int = 4, groups: int = 1, **more: Any) -> relax.Call:
    weight = RNG.integers(-128, 128, (outputs, 4 // groups, 3, 3), "int8")
    points = [zero(3), zero(0), scale(0.1), scale([0.1] * outputs)]
    window = {"padding": (1, 1), "groups": groups} | more
    return op.conv2d(x, relax.const(weight), *points, None, None, **window)


def requantized(x: relax.Expr, axis: int = 1) -> relax.Call:
    scales = scale(np.linspace(0.001, 0.002, 4))
    return op.requantize(x, scales, zero(0), scale(0.7), zero(3), axis=axis)


def module(build: Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]) -> tvm.IRModule:
    """Put something between a convolution and another one, in NCHW."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(requantized(builder.emit(conv(x))))
            middle = builder.emit(build(builder, first))
            result = builder.emit_output(conv(middle) if middle.ty.ndim == 4 else middle)
        builder.emit_func_output(result)
    return builder.get()


def transposes(mod: tvm.IRModule) -> list[int]:
    """List the ranks of what is transposed, but for constants."""
    found = []
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            moves = isinstance(call, relax.Call) and call.op.name == "relax.permute_dims"
            if moves and isinstance(call.args[0], relax.Var):
                found.append(int(call.ty.ndim))
    return found


BOTH = (scale(0.7), zero(3))
OTHER = (scale(0.9), zero(-4))
POOL = {"strides": (1, 2), "padding": (0, 1), "dilation": (1, 1), "layout": "NCHW"}
TURNED = relax.const(RNG.integers(-128, 128, (4, 4, 2, 2), "int8"))
THROUGH: dict[str, Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]] = {
    "quantize": lambda builder, x: op.quantize(
        builder.emit(op.dequantize(x, scale([1, 2, 3, 4]), zero([1, 2, 3, 4]), axis=1)),
        scale([4, 3, 2, 1]),
        zero([1, 2, 3, 4]),
        axis=-3,
    ),
    "requantize": lambda builder, x: requantized(builder.emit(relax.op.astype(x, "int32")), -3),
    "add": lambda builder, x: op.add(x, x, *BOTH, *BOTH, *OTHER),
    "add by channel": lambda builder, x: op.add(
        x, x, scale([1, 2, 3, 4]), zero(1), *BOTH, *OTHER, lhs_axis=1, rhs_axis=-3
    ),
    "concatenate": lambda builder, x: op.concatenate(
        [x, x], [BOTH[0]] * 2, [BOTH[1]] * 2, *OTHER, axis=2
    ),
    "softmax": lambda builder, x: op.softmax(x, *BOTH, scale(1 / 256), zero(-128), axis=1),
    "avg_pool2d": lambda builder, x: op.avg_pool2d(x, *BOTH, *OTHER, (2, 3), **POOL),
    "conv2d_transpose": lambda builder, x: requantized(
        builder.emit(op.conv2d_transpose(x, TURNED, zero(3), zero(0), *[scale(0.1)] * 2, (2, 2)))
    ),
}


def converted(build: Any, convert: Any) -> str:
    """Convert the layout: one transpose in, one out, and the same bits; return the text."""
    mod = module(build)
    made = convert(mod)
    assert transposes(made) == [4, 4]
    data = RNG.integers(-128, 128, SHAPE, "int8")
    np.testing.assert_array_equal(*(run(each, data)[0] for each in (mod, made)))
    return str(made.script())


@pytest.mark.parametrize("name", THROUGH)
def test_between_convolutions_nothing_is_transposed(name: str) -> None:
    text = converted(THROUGH[name], relax.transform.ConvertLayout(DESIRED))
    assert text.count("R.qnn.conv2d(") == text.count('kernel_layout="OHWI"') == 2


def test_channels_last_takes_biases_and_padding_along() -> None:
    """Biases of the shape (c, 1, 1), as Relay's are, and a pad between two convolutions."""

    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        bias = relax.const(RNG.integers(-99, 99, (4, 1, 1), "int32"))
        sums = builder.emit(relax.op.add(bias, builder.emit(conv(x))))
        widths = [0, 0, 0, 0, 1, 2, 3, 0]
        return relax.op.nn.pad(builder.emit(requantized(sums)), widths, "constant", 3)

    assert "pad_width=[0, 0, 1, 2, 3, 0, 0, 0]" in converted(build, channels_last())
