"""Quantized TensorFlow Lite operators against LiteRT's reference kernels; what is refused."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm

import tvmlab
from tests.frontend.tflite import Quantized, Step, write
from tests.frontend.tflite_quantized import (
    CASES,
    activation,
    code,
    convolution,
    dense,
    integers,
    pool,
    reference,
    requantized,
    reshaped,
    together,
    value,
)
from tests.oracles.models import quickly, real_model, said
from tvmlab.errors import ModelError, UnsupportedOperatorError

tflite = pytest.importorskip("tflite", reason="tflite is not installed")


def inputs_of(content: bytes, dtype: str) -> list[np.ndarray]:
    graph = tflite.Model.GetRootAsModel(content, 0).Subgraphs(0)
    made = []
    for i in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(i))
        shape = tuple(tensor.ShapeAsNumpy())
        if tensor.Type() == tflite.TensorType.FLOAT32:
            made.append(np.random.default_rng(i).uniform(-9, 9, shape).astype("float32"))
        else:
            made.append(integers(shape, dtype, i))
    return made


@functools.cache
def results(dtype: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What we give and what LiteRT gives, by case: all cases are one model."""
    content = together({name: make(dtype) for name, make in CASES.items()}).content
    inputs = inputs_of(content, dtype)
    ours = quickly(tvmlab.load(content), *inputs)
    return dict(zip(CASES, zip(ours, reference(content, *inputs), strict=True), strict=True))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_reference_kernels_numbers(name: str, dtype: str) -> None:
    result, expected = results(dtype)[name]
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    # The kernels round twice, and a float's rounding decides some halves otherwise: one step, in
    # few places.
    assert difference.max() <= 1
    assert (difference > 0).sum() <= max(2, 0.15 * difference.size)


def test_a_quantized_model_says_how_litert_rounds() -> None:
    for dtype in ("int8", "uint8"):
        mod = tvmlab.load(requantized(dtype, dtype).content)
        assert str(mod["main"].attrs["qnn.rounding"]) == "TFLITE"


def test_a_float_model_has_no_rounding() -> None:
    content = write({"x": (1, 4), "y": (1, 4)}, [Step(code("RELU"), [0], [1], "")])
    assert "qnn.rounding" not in tvmlab.load(content)["main"].attrs


def test_no_weight_is_kept_twice() -> None:
    """Upstream lists the constants as an attribute too, for parameters that are not there."""
    mod = tvmlab.load(convolution("int8").content)
    assert "params" not in mod["main"].attrs


def test_nhwc_is_kept() -> None:
    text = tvmlab.load(convolution("int8").content).script()
    assert 'data_layout="NHWC"' in text
    assert "permute_dims" not in text


def test_an_average_is_taken_between_dequantize_and_quantize() -> None:
    """Upstream divides int32 and cuts off: -1.5 becomes -1, and LiteRT says -2."""
    tensors = {"x": value((1, 1, 2, 1), "int8", 1.0, 0), "y": value((1, 1, 1, 1), "int8", 1.0, 0)}
    options = {"StrideH": 1, "StrideW": 1, "FilterHeight": 1, "FilterWidth": 2, "Padding": 1}
    content = write(tensors, [Step(code("AVERAGE_POOL_2D"), [0], [1], "Pool2DOptions", options)])
    for pair, average in (((-1, -2), -2), ((-7, -8), -8), ((1, 2), 2), ((-3, -3), -3)):
        x = np.array(pair, "int8").reshape(1, 1, 2, 1)
        assert reference(content, x)[0].item() == average
        assert quickly(tvmlab.load(content), x)[0].item() == average


def test_the_limits_of_an_activation_are_rounded_away_from_zero() -> None:
    # 6 / 12 and 1 / 2 are halves: ties to even would cut everything off.
    for fused, scale, limit in (("RELU6", 12.0, 1), ("RELU_N1_TO_1", 2.0, 1), ("RELU6", 2.4, 3)):
        tensors = {name: value((1, 1, 5, 1), "int8", scale, 0) for name in "xy"}
        options = {"StrideH": 1, "StrideW": 1, "FilterHeight": 1, "FilterWidth": 1, "Padding": 1}
        options["FusedActivationFunction"] = activation(fused)
        content = write(tensors, [Step(code("MAX_POOL_2D"), [0], [1], "Pool2DOptions", options)])
        x = np.array([-9, -1, 0, 1, 9], "int8").reshape(1, 1, 5, 1)
        (expected,) = reference(content, x)
        assert expected.max() == limit
        np.testing.assert_array_equal(quickly(tvmlab.load(content), x)[0], expected)


# What is refused


def refused(content: bytes, kind: type[ModelError], match: str) -> ModelError:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(content)
    assert type(caught.value) is kind
    said(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("scale", "zero", "match"),
    [
        (0.0, 0, "scale of 0.0"),
        (-0.5, 0, "scale of -0.5"),
        (float("nan"), 0, "scale of nan"),
        (float("inf"), 0, "scale of inf"),
        (0.5, 200, "zero point of 200, out of int8's range"),
        (0.5, -129, "zero point of -129, out of int8's range"),
    ],
)
def test_bad_scales_and_zero_points(scale: float, zero: int, match: str) -> None:
    tensors = {"x": value((1, 4), "int8"), "y": Quantized((1, 4), "int8", [scale], [zero])}
    error = refused(write(tensors, [Step(code("RELU"), [0], [1], "")]), ModelError, match)
    assert error.where is not None
    assert "tensor 'y'" in error.where


@pytest.mark.parametrize(
    ("scales", "axis", "match"),
    [
        ([0.1, 0.2], 0, r"2 scales along axis 0 of shape \[3, 4\]"),
        ([0.1] * 3, 2, r"3 scales along axis 2 of shape \[3, 4\]"),
    ],
)
def test_scales_that_do_not_fit_the_channels(scales: list[float], axis: int, match: str) -> None:
    weight = Quantized(integers((3, 4), "int8"), "int8", scales, [0] * len(scales), axis)
    tensors = {"x": value((1, 4), "int8"), "weight": weight, "y": value((1, 3), "int8")}
    step = Step(code("FULLY_CONNECTED"), [0, 1], [2], "FullyConnectedOptions")
    error = refused(write(tensors, [step]), ModelError, match)
    assert "tensor 'weight'" in str(error.where)


def test_an_operator_without_a_quantized_form_is_named_with_its_place() -> None:
    axis = Quantized(np.array([1]), "int32")
    tensors = {"x": value((1, 4), "int8"), "axis": axis, "flipped": value((1, 4), "int8")}
    content = write(tensors, [Step(code("REVERSE_V2"), [0, 1], [2], "ReverseV2Options")])
    error = refused(content, UnsupportedOperatorError, "REVERSE_V2")
    assert "REVERSE_V2 giving 'flipped'" in str(error.where)
    assert "quantized operators supported: ABS, ADD" in str(error.fix)


def test_float_data_with_integer_weights_are_refused() -> None:
    weight = Quantized(integers((3, 4), "int8"), "int8", [0.1], [0])
    step = Step(code("FULLY_CONNECTED"), [0, 1], [2], "FullyConnectedOptions")
    content = write({"x": (1, 4), "weight": weight, "dense": (1, 3)}, [step])
    error = refused(content, UnsupportedOperatorError, "dynamic range quantization")
    assert "FULLY_CONNECTED giving 'dense'" in str(error.where)


def test_moving_to_another_scale_is_refused() -> None:
    tensors = {"x": value((1, 1, 4), "int8", 0.5), "y": value((4,), "int8", 0.25)}
    step = Step(code("SQUEEZE"), [0], [1], "SqueezeOptions", {"SqueezeDims": [0, 1]})
    error = refused(write(tensors, [step]), UnsupportedOperatorError, "different scales")
    assert "SQUEEZE giving 'y'" in str(error.where)


def test_a_fused_activation_without_a_form_in_integers() -> None:
    error = refused(
        dense("int8", "TANH").content, UnsupportedOperatorError, "fused activation TANH"
    )
    assert "FULLY_CONNECTED giving 'y'" in str(error.where)


def test_an_average_to_another_scale_is_refused() -> None:
    error = refused(pool("AVERAGE", "int8", same=False).content, UnsupportedOperatorError, "scales")
    assert "AVERAGE_POOL_2D giving 'y'" in str(error.where)


def test_an_operator_that_fails_is_named() -> None:
    tensors = {"x": value((1, 4), "int8"), "y": value((1, 4), "int8")}
    content = write(tensors, [Step(code("RELU"), [0, 0], [1], "")])
    error = refused(content, ModelError, "RELU: AssertionError")
    assert "RELU giving 'y'" in str(error.where)


def test_importing_twice_gives_the_same_module() -> None:
    content = reshaped("uint8", "TRANSPOSE").content
    tvm.ir.assert_structural_equal(tvmlab.load(content), tvmlab.load(content))


def test_resnet8_says_what_litert_says() -> None:
    """Float between dequantize and quantize: steps early on are amplified, classes mostly agree."""
    content = real_model("resnet8_int8.tflite")
    mod = tvmlab.load(content)
    assert str(mod["main"].attrs["qnn.rounding"]) == "TFLITE"
    executable = tvmlab.compile(mod)
    pictures = [integers((1, 32, 32, 3), "int8", seed) for seed in range(20)]
    same = [executable(x).argmax() == reference(content, x)[0].argmax() for x in pictures]
    assert sum(same) >= 17
