"""What quantized operators refuse: in the reference, when a call is built, and in a module's call.

One table for all of them. A row that is not refused when the call is built is refused when it is
legalized, because only then the rounding and all constants are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import ir, relax

from tvmlab import relay
from tvmlab.errors import InputError, ShapeError, TvmlabError
from tvmlab.qnn import arithmetic, config, op
from tvmlab.qnn.config import Requantization, requantize_config

X = np.zeros((1, 3, 4, 4), "int8")
W = np.zeros((2, 3, 1, 1), "int8")
WIDE = {"lhs": X.astype("int32"), "rhs": X.astype("int32")}
PRODUCT = {"input_zero_point": 0, "kernel_zero_point": 0, "input_scale": 0.5, "kernel_scale": 0.5}
OUTPUT = {"output_scale": 0.5, "output_zero_point": 0}
BOTH = {"lhs_scale": 0.5, "lhs_zero_point": 0, "rhs_scale": 0.5, "rhs_zero_point": 0, **OUTPUT}
BROADCAST = {"lhs": X, "rhs": X, **BOTH, "lhs_axis": 1, "rhs_axis": 1}
INPUT = {"input_scale": 0.5, "input_zero_point": 0}
ONE = {"scale": 0.5, "zero_point": 0, **OUTPUT}
POOL = {"pool_size": [2, 2], "strides": [1, 1], "padding": [0], "dilation": [1, 1]}
CALLS: dict[str, dict[str, Any]] = {
    "quantize": {"data": X.astype("float32"), **OUTPUT, "axis": 1},
    "dequantize": {"data": X, **INPUT, "axis": 1},
    "requantize": {"data": X, **INPUT, **OUTPUT, "axis": 1},
    "conv2d": {"data": X, "kernel": W, **PRODUCT, "kernel_size": None, "channels": None},
    "conv2d_transpose": {"data": X, "weight": np.zeros((3, 2, 1, 1), "int8"), **PRODUCT},
    "dense": {"data": X[0, 0], "weight": np.zeros((2, 4), "int8"), **PRODUCT, "units": None},
    "batch_matmul": {
        **{"x": X[0], "y": X[0], "x_zero_point": 0, "y_zero_point": 0},
        **{"x_scale": 0.5, "y_scale": 0.5},
    },
    **dict.fromkeys(("add", "subtract", "mul"), BROADCAST),
    "concatenate": {"data": [X, X], "input_scales": [0.5] * 2, "input_zero_points": [0] * 2}
    | {**OUTPUT, "axis": 1},
    "avg_pool2d": {"data": X, **INPUT, **OUTPUT, **POOL},
    "tanh": {"x": X, **ONE},
    "softmax": {"x": X, **ONE},
}
POINTS = [(c, n) for c, given in CALLS.items() for n in given if n.endswith(("scale", "point"))]


def compute(call: str, **changed: Any) -> np.ndarray:
    found = getattr(arithmetic, call)(**{**CALLS[call], **changed})
    assert isinstance(found, np.ndarray)
    return found


def _expression(name: str, value: Any) -> Any:
    if isinstance(value, list) and name in ("data", "input_scales", "input_zero_points"):
        return [_expression(name.removesuffix("s"), one) for one in value]
    if isinstance(value, np.ndarray):
        return relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
    if name.endswith("scale"):
        with np.errstate(over="ignore"):
            return relax.const(np.asarray(value, "float32"))
    return relax.const(np.asarray(value, "int32")) if name.endswith("zero_point") else value


def build(call: str, **changed: Any) -> relax.Call:
    given = {**CALLS[call], **changed}
    return getattr(op, call)(**{name: _expression(name, value) for name, value in given.items()})


def in_a_module(call: relax.Call) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", relax.analysis.free_vars(call)):
        builder.emit_func_output(builder.emit(call))
    return builder.get()


def from_a_file(call: str, **changed: Any) -> tvm.IRModule:
    """Legalize a call as a module from a file has it: no builder has looked at its constants."""
    good = build(call)
    places = [str(argument.name) for argument in ir.Op.get(f"relax.qnn.{call}").arguments]
    args = list(good.args)
    for name, value in changed.items():
        args[places.index(name)] = _expression(name, value)
    return relax.transform.LegalizeOps()(in_a_module(relax.Call(good.op, args, good.attrs)))


@pytest.mark.parametrize("call", CALLS)
def test_the_calls_are_good_as_they_are(call: str) -> None:
    compute(call)
    assert "qnn." not in relax.transform.LegalizeOps()(in_a_module(build(call))).script()


@pytest.mark.parametrize(("call", "name"), POINTS)
def test_scales_and_zero_points_that_are_none(call: str, name: str) -> None:
    bad: tuple[float, ...] = -129, 128, 2**31 - 1
    words = "values of int8 lie in -128 to 127"
    if name.endswith("scale"):
        bad = 0.0, -0.5, np.nan, np.inf, -np.inf, 1e-50, 1e50
        words = ".*a scale is a finite"
    for value in bad:
        for door in (compute, build, from_a_file):
            with pytest.raises(InputError, match=rf"^{name} is .*{words}") as caught:
                door(call, **{name: value})
            assert caught.value.where == f"qnn.{call}, operand {name}"
    for door in (compute, build):
        with pytest.raises((InputError, ShapeError), match=rf"^{name} has 7 values"):
            door(call, **{name: [1] * 7})
    if name.endswith("point"):
        with pytest.raises(InputError, match=rf"^{name} has dtype float64"):
            compute(call, **{name: 0.5})


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # Shapes, layouts and windows
    ("conv2d", {"kernel": W[:, :2]}, "has 2 input channels"),
    ("conv2d", {"groups": 2}, "groups is 2"),
    ("conv2d", {"kernel": np.zeros((2, 3, 7, 1), "int8")}, "is larger than the padded data"),
    ("conv2d", {"data": X[0]}, r"data has 3 dimensions"),
    ("conv2d", {"strides": (0, 1)}, "strides is"),
    ("conv2d", {"padding": (1, 2, 3)}, "1, 2 or 4 are needed"),
    ("conv2d_transpose", {"weight": W}, "has 2 input channels"),
    ("dense", {"weight": np.zeros((2, 5), "int8")}, "has 5 inputs"),
    ("batch_matmul", {"y": X[0, :2]}, "3 matrices, y 2"),
    ("add", {"rhs": X[:, :, :3]}, "do not broadcast"),
    ("avg_pool2d", {"pool_size": [9, 9]}, "larger than the padded data"),
    ("concatenate", {"data": [X, X[:, :, :2]]}, r"data\.1 has shape"),
    ("concatenate", {"data": [X]}, "input_scales is .* must be a tuple"),
    # Axes, and values by channel along them
    *((call, {"axis": 4}, "axis 4") for call in ("quantize", "dequantize")),
    ("requantize", {"input_scale": [0.5, 1.0, -2.0]}, "input_scale is -2.0 at channel 2"),
    ("quantize", {"output_scale": [0.5] * 4}, "output_scale has 4 values; there are 3 channels"),
    ("conv2d", {"kernel_scale": [0.5] * 3}, "kernel_scale has 3 values; there are 2 channels"),
    ("concatenate", {"input_scales": [0.5, 0.0]}, r"input_scales\.1 is 0.0"),
    # Dtypes
    *((call, {"rhs": X.astype("uint8")}, "rhs has dtype uint8") for call in ("add", "mul")),
    ("tanh", {"x": X.astype("int32")}, "x has dtype int32"),
    ("quantize", {"out_dtype": "float32"}, "float32"),
    # Roundings, and what only some of them compute
    ("requantize", {"rounding": "NEAREST"}, 'rounding is "NEAREST"'),
    ("requantize", {"compute_dtype": "int32"}, 'compute_dtype is "int32"'),
    ("requantize", {"rounding": "TFLITE", "compute_dtype": "float32"}, 'no kernel of "TFLITE"'),
    *(
        (call, {"lhs_scale": [0.5, 0.25, 0.5], "rounding": rounding}, "one scale|one value")
        for call in ("add", "subtract")
        for rounding in ("TFLITE", "ONNX")
    ),
    ("add", {"lhs_zero_point": [1, 2, 3], "rounding": "ONNX"}, "one scale|one value"),
    ("add", {**WIDE, "rounding": "TFLITE"}, "takes int8, uint8 and int16, as TFLite"),
    ("mul", {"lhs_scale": [0.5, 1, 2], "rhs_scale": [0.5, 1, 2, 3], "rhs_axis": 2}, "same axis"),
    ("mul", {"lhs_scale": [1, 1e30, 1], "rhs_scale": 1e30}, "rhs_scale is inf at channel 1"),
    ("softmax", {"scale": 1.5}, "it must be at most 1"),
    ("requantize", {"input_scale": 2.0**20, "output_scale": 2.0**-20}, r"must be below 2\*\*30"),
]


@pytest.mark.parametrize(("call", "changed", "words"), REFUSED)
def test_a_wrong_call_is_refused(call: str, changed: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ShapeError), match=words) as caught:
        compute(call, **changed)
    assert call in str(caught.value.where)
    with pytest.raises((InputError, ShapeError), match=words) as caught:
        relax.transform.LegalizeOps()(in_a_module(build(call, **changed)))
    assert call in str(caught.value.where)


def test_an_operand_is_refused_by_name() -> None:
    x = relax.Var("x", relax.TensorType((2, 8), "int8"))
    scale, zero = relax.const(np.float32(0.1)), relax.const(np.int32(1))
    with pytest.raises(TvmlabError, match=r"output_scale is of class float(.|\n)*0\.1"):
        op.quantize(x, 0.1, zero)  # type: ignore[arg-type]
    with pytest.raises(TvmlabError, match=r"zero_point has dtype float32.*int32"):
        op.dequantize(x, scale, scale)
    with pytest.raises(TvmlabError, match=r'out_dtype is "int8".*int16, int32, int64'):
        build("conv2d", out_dtype="int8")
    with pytest.raises(TvmlabError, match=r"data is .* must be a tuple"):
        op.concatenate(x, [scale], [zero], scale, zero, 1)  # type: ignore[arg-type]


# The configuration of roundings


def test_configurations_nest_and_end() -> None:
    with requantize_config(rounding="TONEAREST") as outer:
        assert outer == config.resolve("here") == Requantization("TONEAREST", "int64")
        with relay.qnn.op.requantize_config(compute_dtype="float32"):
            assert config.resolve("here") == Requantization("TONEAREST", "float32")
            # TFLite's rounding is one of integers, whatever holds for the others.
            assert config.resolve("here", "TFLITE") == Requantization("TFLITE", "int64")
            with requantize_config(rounding="TFLITE", compute_dtype="float64"):
                assert config.resolve("here") == Requantization("TFLITE", "float64")
        with pytest.raises(KeyError), requantize_config(rounding="UPWARD"):
            raise KeyError
        assert config.resolve("here") == outer
    with requantize_config(rounding="ONNX") as chosen:
        assert chosen == Requantization("ONNX", "float32")
        # Another rounding does not take its dtype over.
        assert config.resolve("here", "UPWARD") == Requantization()
    assert config.resolve("here") == Requantization()
