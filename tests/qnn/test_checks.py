"""What the reference refuses, and in which words; how the way of rounding is configured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvmlab import relay
from tvmlab.errors import InputError, ShapeError, TvmlabError
from tvmlab.qnn import arithmetic, config, op
from tvmlab.qnn.config import Requantization, requantize_config

X = np.zeros((1, 3, 4, 4), "int8")
W = np.zeros((2, 3, 1, 1), "int8")
PRODUCT = {"input_zero_point": 0, "kernel_zero_point": 0, "input_scale": 0.5, "kernel_scale": 0.5}
OUTPUT = {"output_scale": 0.5, "output_zero_point": 0}
BOTH = {"lhs_scale": 0.5, "lhs_zero_point": 0, "rhs_scale": 0.5, "rhs_zero_point": 0, **OUTPUT}
ONE = {"scale": 0.5, "zero_point": 0, **OUTPUT}
POOL = {"pool_size": [2, 2], "strides": [1, 1], "padding": [0], "dilation": [1, 1]}
CALLS: dict[str, dict[str, Any]] = {
    "quantize": {"data": X.astype("float32"), **OUTPUT, "axis": 1},
    "dequantize": {"data": X, "input_scale": 0.5, "input_zero_point": 0, "axis": 1},
    "requantize": {"data": X, "input_scale": 0.5, "input_zero_point": 0, **OUTPUT, "axis": 1},
    "conv2d": {"data": X, "kernel": W, **PRODUCT},
    "conv2d_transpose": {"data": X, "weight": np.zeros((3, 2, 1, 1), "int8"), **PRODUCT},
    "dense": {"data": X[0, 0], "weight": np.zeros((2, 4), "int8"), **PRODUCT},
    "batch_matmul": {
        **{"x": X[0], "y": X[0], "x_zero_point": 0, "y_zero_point": 0},
        **{"x_scale": 0.5, "y_scale": 0.5},
    },
    "add": {"lhs": X, "rhs": X, **BOTH, "lhs_axis": 1, "rhs_axis": 1},
    "subtract": {"lhs": X, "rhs": X, **BOTH, "lhs_axis": 1, "rhs_axis": 1},
    "mul": {"lhs": X, "rhs": X, **BOTH, "lhs_axis": 1, "rhs_axis": 1},
    "avg_pool2d": {"data": X, "input_scale": 0.5, "input_zero_point": 0, **OUTPUT, **POOL},
    "tanh": {"x": X, **ONE},
    "softmax": {"x": X, **ONE},
    "leaky_relu": {"x": X, "alpha": 0.25, **ONE},
}
SCALES = [(call, name) for call, given in CALLS.items() for name in given if name.endswith("scale")]
ZEROS = [(call, name) for call, given in CALLS.items() for name in given if name.endswith("point")]


def compute(call: str, **changed: Any) -> np.ndarray:
    found = getattr(arithmetic, call)(**{**CALLS[call], **changed})
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_the_calls_are_good_as_they_stand(call: str) -> None:
    compute(call)


@pytest.mark.parametrize("bad", [0.0, -0.5, np.nan, np.inf, -np.inf, 1e-50, 1e50])
@pytest.mark.parametrize(("call", "name"), SCALES)
def test_scales_that_are_none(call: str, name: str, bad: float) -> None:
    with pytest.raises(InputError, match=rf"^{name} is .*a scale is a finite") as caught:
        compute(call, **{name: bad})
    assert caught.value.where == f"qnn.{call}, operand {name}"


@pytest.mark.parametrize("bad", [-129, 128, 2**31])
@pytest.mark.parametrize(("call", "name"), ZEROS)
def test_zero_points_out_of_range(call: str, name: str, bad: int) -> None:
    with pytest.raises(InputError, match=rf"^{name} is {bad}; values of int8 lie in -128 to 127"):
        compute(call, **{name: bad})


@pytest.mark.parametrize("bad", [[0.5] * 7, [[0.5]], []])
@pytest.mark.parametrize(("call", "name"), SCALES)
def test_scales_of_the_wrong_length(call: str, name: str, bad: list[Any]) -> None:
    with pytest.raises(InputError, match=rf"^{name} has (7|2|0) (values|dimensions)"):
        compute(call, **{name: bad})


@pytest.mark.parametrize(("call", "name"), ZEROS)
def test_zero_points_of_the_wrong_kind(call: str, name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name} has 7 values"):
        compute(call, **{name: [0] * 7})
    with pytest.raises(InputError, match=rf"^{name} has dtype float64"):
        compute(call, **{name: 0.5})


def test_a_scale_is_a_number() -> None:
    with pytest.raises(InputError, match="input_scale has dtype"):
        compute("requantize", input_scale="0.5")


def test_one_bad_channel_is_named() -> None:
    with pytest.raises(InputError, match=r"input_scale is -2.0 at channel 2"):
        compute("requantize", input_scale=[0.5, 1.0, -2.0])


@pytest.mark.parametrize("call", ["quantize", "dequantize", "requantize"])
@pytest.mark.parametrize("axis", [4, -5])
def test_axes_out_of_range(call: str, axis: int) -> None:
    with pytest.raises(InputError, match=f"axis is {axis}; the data has 4 dimensions"):
        compute(call, axis=axis)


@pytest.mark.parametrize(
    ("call", "changed", "words"),
    [
        ("conv2d", {"kernel": W[:, :2]}, "does not fit data"),
        ("conv2d", {"groups": 2}, "in 2 groups"),
        ("conv2d", {"groups": 0}, "in 0 groups"),
        ("conv2d", {"channels": 5}, "channels is 5; the weight makes 2"),
        ("conv2d", {"kernel_size": (3, 3)}, "kernel_size"),
        ("conv2d", {"kernel": np.zeros((2, 3, 7, 1), "int8")}, "larger than the padded data"),
        ("conv2d", {"data_layout": "NHWD"}, "NHWD"),
        ("conv2d", {"out_layout": "NCH"}, "NCH"),
        ("conv2d", {"strides": (0, 1)}, "strides"),
        ("conv2d", {"padding": (1, 2, 3)}, "padding"),
        ("conv2d_transpose", {"weight": W}, "does not fit data"),
        ("conv2d_transpose", {"padding": (2, 2)}, "nothing is left"),
        ("conv2d_transpose", {"channels": 7}, "channels is 7"),
        ("dense", {"weight": np.zeros((2, 5), "int8")}, "does not fit data"),
        ("dense", {"units": 3}, "units is 3"),
        ("batch_matmul", {"y": X[0, :2]}, "do not fit"),
        ("add", {"rhs": X[:, :, :3]}, "do not broadcast"),
        ("avg_pool2d", {"pool_size": [9, 9]}, "larger than the padded data"),
        ("avg_pool2d", {"layout": "NCWW"}, "NCWW"),
    ],
)
def test_shapes_that_do_not_fit(call: str, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        compute(call, **changed)


@pytest.mark.parametrize("call", ["add", "subtract", "mul"])
def test_mixed_dtypes_are_refused(call: str) -> None:
    with pytest.raises(InputError, match="rhs has dtype uint8; lhs has int8"):
        compute(call, rhs=X.astype("uint8"))


@pytest.mark.parametrize("call", ["add", "subtract", "mul"])
def test_tflite_takes_one_scale_a_tensor(call: str) -> None:
    compute(call, lhs_scale=[0.5, 0.25, 0.5])
    with pytest.raises(InputError, match="one scale a tensor"):
        compute(call, lhs_scale=[0.5, 0.25, 0.5], rounding="TFLITE")


def test_other_refusals() -> None:
    wide = X.astype("int32")
    with pytest.raises(InputError, match="adds no quantized int32"):
        compute("add", lhs=wide, rhs=wide, rounding="TFLITE")
    with pytest.raises(InputError, match="rhs_axis 2"):
        compute("mul", lhs_scale=[0.5, 1, 2], rhs_scale=[0.5, 1, 2, 3], rhs_axis=2)
    with pytest.raises(InputError, match=r"lhs_scale times rhs_scale is 0\.0"):
        compute("mul", lhs_scale=1e-30, rhs_scale=1e-30)
    with pytest.raises(InputError, match="a scale of at most 1"):
        compute("softmax", scale=1.5)
    with pytest.raises(InputError, match="int8 and a scale"):
        compute("softmax", x=X.astype("uint8"))
    with pytest.raises(InputError, match=r"up to 2\*\*30"):
        compute("requantize", input_scale=2.0**20, output_scale=2.0**-20)
    for name, given in (("data has 1 fields", [X]), ("0 fields", [])):
        with pytest.raises(InputError, match=name):
            arithmetic.concatenate(given, [0.5, 0.5], [0, 0], 0.5, 0, 0)
    with pytest.raises(InputError, match="several dtypes"):
        arithmetic.concatenate([X, X.astype("uint8")], [0.5, 0.5], [0, 0], 0.5, 0, 0)
    with pytest.raises(InputError, match=r"input_scales.1 is 0.0"):
        arithmetic.concatenate([X, X], [0.5, 0.0], [0, 0], 0.5, 0, 0)
    with pytest.raises(ShapeError, match="cannot be joined"):
        arithmetic.concatenate([X, X[:, :2]], [0.5, 0.5], [0, 0], 0.5, 0, 0)
    with pytest.raises(InputError, match="input_zero_point is 300"):
        arithmetic.largest_sum(9, "uint8", "int8", 300)


def test_the_default_way() -> None:
    assert config.resolve("here") == Requantization("UPWARD", "int64")


def test_configurations_nest_and_end() -> None:
    with requantize_config(rounding="TONEAREST") as outer:
        assert outer == config.resolve("here") == Requantization("TONEAREST", "int64")
        with requantize_config(compute_dtype="float32"):
            assert config.resolve("here") == Requantization("TONEAREST", "float32")
            # TFLite's rounding is one of integers, whatever holds for the others.
            assert config.resolve("here", "TFLITE") == Requantization("TFLITE", "int64")
            with requantize_config(rounding="TFLITE", compute_dtype="float64"):
                assert config.resolve("here") == Requantization("TFLITE", "float64")
                assert config.resolve("here", "TFLITE", "int64").compute_dtype == "int64"
        assert config.resolve("here") == outer
        with pytest.raises(KeyError), requantize_config(rounding="UPWARD"):
            raise KeyError
        assert config.resolve("here") == outer
    assert config.resolve("here") == Requantization()


def test_each_thread_and_task_has_its_own() -> None:
    seen: list[Requantization] = []
    with requantize_config(rounding="TONEAREST"):
        thread = threading.Thread(target=lambda: seen.append(config.resolve("thread")))
        thread.start()
        thread.join()
    assert seen == [Requantization()]

    async def configured(rounding: str) -> str:
        with requantize_config(rounding=rounding):
            await asyncio.sleep(0)
            return config.resolve("task").rounding

    async def both() -> list[str]:
        return await asyncio.gather(configured("TONEAREST"), configured("TFLITE"))

    assert asyncio.run(both()) == ["TONEAREST", "TFLITE"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounding": "DOWNWARD"}, r'rounding is "DOWNWARD"; .*UPWARD, TONEAREST, TFLITE'),
        ({"compute_dtype": "int32"}, r'compute_dtype is "int32"'),
        ({"rounding": "TFLITE", "compute_dtype": "float32"}, 'no kernel of "TFLITE"'),
    ],
)
def test_bad_configurations(given: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words), requantize_config(**given):
        pytest.fail("it was taken")
    assert config.resolve("here") == Requantization()
    with pytest.raises(InputError, match=words):
        compute("requantize", **given)


def test_relay_s_place_for_it() -> None:
    with relay.qnn.op.requantize_config(rounding="TONEAREST"):
        assert config.resolve("here").rounding == "TONEAREST"


def var(name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def scalars(count: int) -> list[relax.Expr]:
    return [relax.const(*pair) for pair in ((0.5, "float32"), (0, "int32")) * count]


CALLED: dict[str, Callable[..., relax.Call]] = {
    "requantize": lambda **more: op.requantize(var("x", (2, 3), "int32"), *scalars(2), **more),
    "add": lambda **more: op.add(*[var("x", (2, 3), "int8")] * 2, *scalars(3), **more),
    "subtract": lambda **more: op.subtract(*[var("x", (2, 3), "int8")] * 2, *scalars(3), **more),
    "mul": lambda **more: op.mul(*[var("x", (2, 3), "int8")] * 2, *scalars(3), **more),
    "avg_pool2d": lambda **more: op.avg_pool2d(
        var("x", (1, 4, 4, 3), "int8"), *scalars(2), [2, 2], [1, 1], [0], [1, 1], **more
    ),
}


@pytest.mark.parametrize("name", CALLED)
def test_roundings_of_operators(name: str) -> None:
    assert CALLED[name]().attrs["rounding"] == "None"
    assert CALLED[name](rounding="TFLITE").attrs["rounding"] == "TFLITE"
    with pytest.raises(InputError, match='rounding is "NEAREST"'):
        CALLED[name](rounding="NEAREST")


def test_requantize_takes_a_float64_scale() -> None:
    x, wide = var("x", (2, 3), "int32"), relax.const(np.full(3, 0.1), "float64")
    call = op.requantize(x, wide, relax.const(0, "int32"), *scalars(1))
    assert call.ty.dtype == "int8"
    for operands in ([x, wide, relax.const(0, "int32")],):
        with pytest.raises(TvmlabError, match="input_scale has dtype float64"):
            op.dequantize(*operands)
