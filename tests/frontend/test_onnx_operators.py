"""ONNX operators that upstream lacks or gets wrong: the same results as ONNX and its runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (registers the small floats with NumPy)
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tvmlab
from tests.oracles.models import (
    FLOAT,
    agree_with_onnx_runtime,
    array,
    by_onnx_reference,
    model,
    node,
    value,
    weight,
)
from tests.oracles.onnx_backend import Model, backend_tests
from tvmlab.errors import OutOfRangeError, UnsupportedOperatorError

INT64, BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL

# One or more of ONNX's own tests for each operator that `tvmlab.frontend` converts itself.
CASES = [
    "attention_4d_gqa",
    "attention_3d_causal",
    "attention_local_window_gqa_rank4_mask",
    "bitcast_int8_to_uint8",
    "batchnorm_example_training_mode",
    "bitshift_left_int32_shift_ge_width",
    "cast_FLOAT16_to_UINT4",
    "cast_INT2_to_FLOAT",
    "center_crop_pad_crop",
    "bitshift_right_uint16",
    "blackmanwindow",
    "castlike_FLOAT_to_DOUBLE",
    "castlike_FLOAT_to_INT4",
    "causal_conv_with_state_basic",
    "celu",
    "col2im_pads",
    "col2im_strides",
    "convtranspose_output_shape",
    "cumprod_2d_axis_1",
    "cumsum_1d_exclusive",
    "cumsum_1d_reverse",
    "deform_conv_with_mask_bias",
    "deform_conv_with_multiple_offset_groups",
    "dequantizelinear_float4e2m1",
    "dequantizelinear_uint4",
    "dft",
    "dft_irfft",
    "dropout_default_mask",
    "eyelike_with_dtype",
    "flexattention",
    "gru_seq_length",
    "gru_bidirectional",
    "hannwindow",
    "l1normalization_axis_0",
    "l2normalization_axis_1",
    "layer_normalization_4d_axis1",
    "linear_attention_gated_delta",
    "lstm_with_peepholes",
    "lstm_batchwise",
    "lstm_reverse",
    "melweightmatrix",
    "mod_mixed_sign_float64",
    "mod_mixed_sign_int32",
    "mod_float_edge_cases_fmod_0_float32",
    "nllloss_NCd1d2_with_weight",
    "pow_types_float32_int64",
    "nonmaxsuppression_iou_threshold_boundary",
    "pow_types_int32_int32",
    "qlinearmatmul_2D_uint8_float16",
    "quantizelinear_float4e2m1",
    "quantizelinear_int2",
    "reduce_max_bool_inputs",
    "reduce_min_empty_set",
    "resize_downsample_scales_cubic_antialias",
    "resize_tf_crop_and_resize",
    "resize_upsample_sizes_nearest_axes_2_3",
    "reversesequence_time",
    "rms_normalization_2d_axis1",
    "roialign_mode_max",
    "rotary_embedding",
    "scan9_sum",
    "sce_mean_weight_ii_4d",
    "shape_start_1",
    "simple_rnn_bidirectional",
    "spacetodepth_crd_mode_example",
    "stft_with_window",
    "swiglu",
    "tensorscatter_circular",
    "top_k_uint64",
    "upsample_nearest",
]


@pytest.mark.parametrize("name", CASES)
def test_of_onnx(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "form", "bound")
    monkeypatch.setattr(Model, "side", "tvmlab")
    backend_tests()["node"][f"test_{name}"](None)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", ["E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ"])
def test_every_half_as_float8_and_back(kind: str, saturate: int) -> None:
    to = getattr(onnx.TensorProto, f"FLOAT8{kind}")
    nodes = [node("Cast", ["x"], ["c"], to=to, saturate=saturate)]
    nodes.append(node("Cast", ["c"], ["y"], to=onnx.TensorProto.FLOAT))
    half, full = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    proto = model(nodes, [value("x", half, [65536])], [value("y", full, [65536])], opset=19)
    x = np.arange(65536, dtype="uint16").view("float16")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
    want = x.astype(dtype).astype("float32")
    if saturate:  # ml_dtypes does not saturate
        top = float(onnx.numpy_helper.saturate_cast(np.float32([np.inf]), dtype)[0])
        over = np.isinf(x) | (np.abs(x.astype("float64")) > top)
        want = np.where(over & ~np.isnan(x), np.copysign(np.float32(top), x), want)
    np.testing.assert_array_equal(tvmlab.compile(tvmlab.load(proto))(x), want)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("FLOAT4E2M1", {}),
        *(("FLOAT8E8M0", {"round_mode": mode}) for mode in ("up", "down", "nearest")),
        ("FLOAT8E8M0", {"round_mode": "up", "saturate": 0}),
    ],
)
def test_floats_as_float4_and_powers_of_two(kind: str, how: dict[str, Any]) -> None:
    to = getattr(onnx.TensorProto, kind)
    nodes = [node("Cast", ["x"], ["c"], to=to, **how), node("Cast", ["c"], ["y"], to=FLOAT)]
    proto = model(nodes, {"x": (65536,)}, ["y"], opset=25)
    x = (np.arange(65536, dtype="uint32") * 65537).view("float32")  # every upper half of a float32
    with np.errstate(invalid="ignore"):
        (want,) = by_onnx_reference(proto, x)
    np.testing.assert_array_equal(tvmlab.compile(tvmlab.load(proto))(x), want)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("block", [0, 16])
def test_inputs_and_outputs_of_4_bits(dtype: str, block: int, tmp_path: Path) -> None:
    """Blocks of weights, quantized inputs, and inputs and outputs of 4 bits."""
    how = {"axis": 0, "block_size": block} if block else {"axis": 1}
    low, shape = -8 if dtype == "int4" else 0, (4, 6) if block else (6,)
    integers = np.random.default_rng(0).integers(low, low + 16, (64, 6)).astype(dtype)
    weights = [
        weight("s", np.abs(array(*shape)) + 0.1),
        weight("z", integers[:4] if block else integers[0]),
    ]
    kind = onnx.helper.np_dtype_to_tensor_dtype(integers.dtype)
    back = [node("DequantizeLinear", [name, "s", "z"], [f"d{name}"], **how) for name in "wq"]
    forth = node("QuantizeLinear", ["x", "s", "z"], ["q"], **how)
    nodes = [forth, *back, node("Transpose", ["q"], ["t"])]
    outputs, constants = ["dw", "dq", value("t", kind, [6, 64])], [*weights, weight("w", integers)]
    proto = model(nodes, {"x": (64, 6)}, outputs, constants, opset=21, ir_version=10)
    x = 5 * array(64, 6)
    made = tvmlab.compile(tvmlab.load(proto))(x)
    for ours, theirs in zip(made, by_onnx_reference(proto, x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype("float32"), theirs.astype("float32"), rtol=1e-6)
    inputs = [value("w", kind, [64, 6])]
    given = model(back[:1], inputs, ["dw"], weights, opset=21, ir_version=10)
    saved = tvmlab.compile(tvmlab.load(given)).save(tmp_path / "made.so")
    (want,) = by_onnx_reference(given, integers)
    np.testing.assert_allclose(tvmlab.load_executable(saved)(integers), want, rtol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"sampling_ratio": 2, "coordinate_transformation_mode": "output_half_pixel"},
        {"sampling_ratio": 3, "mode": "max"},
    ],
)
def test_regions(how: dict[str, Any]) -> None:
    layer = node("RoiAlign", ["x", "r", "b"], ["y"], output_height=7, output_width=5, **how)
    inputs = [
        value("x", FLOAT, [2, 3, 20, 30]),
        value("r", FLOAT, ["n", 4]),
        value("b", INT64, ["n"]),
    ]
    rois = np.float32([[-30, -20, 40, 35], [0, 0, 11, 8], [2.5, 3, 9, 19.5]])
    proto = model([layer], inputs, ["y"])
    shapes = {"r": ("n", 4), "b": ("n",)}
    images, numbers = array(2, 3, 20, 30), np.array([0, 1, 0])
    agree_with_onnx_runtime(proto, images, rois, numbers, shapes=shapes)
    with pytest.raises(OutOfRangeError, match="out of range"):
        tvmlab.compile(tvmlab.load(proto, shapes=shapes))(images, rois, numbers + 1)


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent(kind: str, gates: int, direction: str) -> None:
    count, hidden, steps = 1 + (direction == "bidirectional"), 5, 4
    weights = [
        weight("w", array(count, gates * hidden, 3)),
        weight("r", array(count, gates * hidden, hidden)),
        weight("b", array(count, 2 * gates * hidden)),
        weight("lengths", np.int32([4, 2])),
    ]
    late = {"linear_before_reset": 1} if kind == "GRU" else {}
    inputs = ["x", "w", "r", "b", "lengths"]
    layer = node(kind, inputs, ["y", "h"], hidden_size=hidden, direction=direction, **late)
    proto = model([layer], {"x": (steps, 2, 3)}, ["y", "h"], weights)
    agree_with_onnx_runtime(proto, array(steps, 2, 3))


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel_symmetric"},
        {"mode": "nearest", "nearest_mode": "ceil"},
    ],
)
def test_resize(how: dict[str, Any]) -> None:
    scales = weight("scales", np.float32([1, 1, 1.7, 0.6]))
    resize = node("Resize", ["x", "", "scales"], ["y"], **how)
    agree_with_onnx_runtime(
        model([resize], {"x": (1, 2, 7, 9)}, ["y"], [scales], opset=18), array(1, 2, 7, 9)
    )


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "Max", "Min"])
def test_extremes_of_infinities(kind: str) -> None:
    reduces = kind.startswith("Reduce")
    nodes = [node(kind, ["x"] if reduces else ["x", "x2"], ["y"])]
    x = np.full((2, 3), np.inf if kind.endswith("Min") else -np.inf, "float32")
    inputs = {"x": (2, 3)} if reduces else {"x": (2, 3), "x2": (2, 3)}
    values = [x] if reduces else [x, np.where(np.eye(2, 3) > 0, np.nan, x).astype("float32")]
    proto = model(nodes, inputs, ["y"])
    want = ReferenceEvaluator(proto).run(None, dict(zip(inputs, values, strict=True)))[0]
    np.testing.assert_array_equal(tvmlab.compile(tvmlab.load(proto))(*values), want)


@pytest.mark.parametrize("kind", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_the_inverse_of_a_comparison_with_nan(kind: str) -> None:
    nodes = [node(kind, ["a", "b"], ["c"]), node("Not", ["c"], ["y"])]
    proto = model(nodes, {"a": (4,), "b": (4,)}, [value("y", BOOL, [4])], opset=17)
    a, b = np.float32([1, np.nan, 3, np.nan]), np.float32([1, 2, np.nan, np.nan])
    want = ReferenceEvaluator(proto).run(None, {"a": a, "b": b})[0]
    np.testing.assert_array_equal(tvmlab.compile(tvmlab.load(proto))(a, b), want)
    itself = model([node("Equal", ["a", "a"], ["y"])], {"a": (4,)}, [value("y", BOOL, [4])])
    np.testing.assert_array_equal(tvmlab.compile(tvmlab.load(itself))(b), b == b)


def test_a_loop_with_a_constant_number_of_iterations() -> None:
    body = onnx.helper.make_graph(
        [
            node("Add", ["s", "x"], ["t"]),
            node("Identity", ["t"], ["u"]),
            node("Identity", ["c"], ["d"]),
        ],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("s", FLOAT, [2])],
        [value("d", BOOL, []), value("t", FLOAT, [2]), value("u", FLOAT, [2])],
    )
    loop = node("Loop", ["n", "", "x"], ["last", "all"], body=body)
    proto = model(
        [loop],
        {"x": (2,)},
        [value("last", FLOAT, [2]), value("all", FLOAT, [3, 2])],
        [weight("n", np.int64(3))],
    )
    agree_with_onnx_runtime(proto, array(2))


@pytest.mark.parametrize(
    ("kind", "given", "attributes", "why"),
    [
        ("DeformConv", [(1, 2, 5, 5), (1, 2, 3, 3), (1, 16, 3, 3)], {}, "sizes do not fit"),
        ("LSTM", [(4, 2, 3), (1, 20, 3), (1, 20, 5)], {"input_forget": 1}, "with input_forget"),
        ("CumSum", [(2, 3), (1,)], {}, "along an axis computed at run time"),
    ],
)
def test_refused(kind: str, given: Any, attributes: dict[str, Any], why: str) -> None:
    inputs = {f"x{i}": shape for i, shape in enumerate(given)}
    if kind == "CumSum":
        inputs = [value("x0", FLOAT, [2, 3]), value("x1", INT64, [1])]
        given = ["x0", "x1"]
    if kind == "LSTM":
        attributes = {**attributes, "hidden_size": 5}
    names = [one if isinstance(one, str) else f"x{i}" for i, one in enumerate(given)]
    out = value("y", attributes.get("to", onnx.TensorProto.FLOAT), None)
    proto = model([node(kind, names, ["y"], **attributes)], inputs, [out], opset=21)
    with pytest.raises(UnsupportedOperatorError, match=why):
        tvmlab.load(proto)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("(uint8[2,3] x) => (int64[2,1] y) { y = ArgMax<axis=1>(x) }", [np.zeros((2, 3), "uint8")]),
        (
            "(float[2,3] x) => (int64[2,1] y) { y = ArgMax<axis=1, select_last_index=1>(x) }",
            [np.full((2, 3), -np.inf, "float32")],
        ),
        (
            "(float[2,3] x) => (float[2,3] y) { y = Hardmax<axis=1>(x) }",
            [np.full((2, 3), -np.inf, "float32")],
        ),
        (
            "(int64[2] x) => (int64[4] y) <int64[2] p={1,1}, int64 v={1152921504606846977}> "
            "{ y = Pad(x, p, v) }",
            [np.array([5, 6])],
        ),
        (
            "(int64[7] x, int64[7] n) => (int64[7] y) { y = Pow(x, n) }",
            [np.array([2, 3, -1, -1, 0, 1, 3]), np.array([-1, -2, -3, -4, 64, 128, 20])],
        ),
        (
            "(int64[2] x, float[2] n) => (int64[2] y) { y = Pow(x, n) }",
            [np.array([3, 7]), np.array([20, 9], "float32")],
        ),
        (
            "(float[3] x) => (float[3] y) { y = ThresholdedRelu<alpha=0.5>(x) }",
            [np.array([-np.inf, 2, 0.3], "float32")],
        ),
        (
            "(float16[1,1,64,64] x) => (float16[1,1,1,1] y) { y = GlobalAveragePool(x) }",
            [np.full((1, 1, 64, 64), 3, "float16")],
        ),
        (
            "(float16[1,4096] x, float16[4096,1] w) => (float16[1,1] y) { y = Gemm(x, w) }",
            [np.full((1, 4096), 3, "float16"), np.full((4096, 1), 3, "float16")],
        ),
        (
            "(float16[1,4096] x) => (float16[1,4096] y) { y = LogSoftmax(x) }",
            [np.full((1, 4096), 3, "float16")],
        ),
        (
            "(float[2,3] x) => (float[2] y) { y = ReduceLogSumExp<axes=[1], keepdims=0>(x) }",
            [np.array([[1, np.inf, 2], [-np.inf] * 3], "float32")],
        ),
        (
            "(float[4] x) => (float[4] y) { y = Atanh(x) }",
            [np.array([1e-7, -1e-5, 1e-3, 0.9], "float32")],
        ),
        (
            "(float[5] x) => (float[5] y) { y = Softplus(x) }",
            [np.array([-20, -10, 0, 10, -np.inf], "float32")],
        ),
    ],
)
def test_limits_of_a_dtype(text: str, inputs: list[Any]) -> None:
    agree_with_onnx_runtime(parsed(text), *inputs)


def parsed(text: str, opset: int = 17) -> Model:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_resize_as_tensorflow_did(mode: str) -> None:
    text = (
        "(float[1,2,5,6] x) => (float[1,2,8,12] y) <float[4] s={1,1,1.6,2}, float[0] r={}> { y = "
        f'Resize<mode="{mode}", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, r, s) }}'
    )
    agree_with_onnx_runtime(parsed(text, 11), np.arange(60.0, dtype="float32").reshape(1, 2, 5, 6))


def test_resize_of_an_open_batch() -> None:
    text = "(float[n,1,5,6] x) => (float[n,1,p,q] y) <float[4] s={1,1,%s,%s}> { y = Resize(x,,s) }"
    image, shapes = np.arange(60.0, dtype="float32").reshape(2, 1, 5, 6), {"x": ("n", 1, 5, 6)}
    for scales in ((2, 3), (1.5, 1.7)):
        agree_with_onnx_runtime(parsed(text % scales), image, shapes=shapes)
    with pytest.raises(UnsupportedOperatorError, match="unknown sizes"):
        tvmlab.load(parsed(text % (1.5, 1.7)), shapes={"x": ("n", 1, "h", 6)})


def test_the_nearest_input_is_found_in_float32() -> None:
    text = (
        "(float[1,1,7,40] x) => (float[a,b,c,d] y) <float[4] s={1,1,0.6,0.3}> { y = Resize<"
        'coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x,,s) }'
    )
    agree_with_onnx_runtime(parsed(text), np.arange(280, dtype="float32").reshape(1, 1, 7, 40))


@pytest.mark.parametrize("kind", ["L1", "L2", "LogSum", "LogSumExp", "Sum", "SumSquare"])
def test_a_reduction_without_axes(kind: str) -> None:
    text = f"(float[2,3] x) => (float[a,b] y) {{ y = Reduce{kind}<noop_with_empty_axes=1>(x) }}"
    proto, x = parsed(text, 18), np.arange(6, dtype="float32").reshape(2, 3) - 2
    x = abs(x) + 1 if kind == "LogSum" else x
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(tvmlab.compile(tvmlab.load(proto))(x), want, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("{ y = Slice<axes=[0], starts=[1], ends=[99]>(x) }", 9),
        ("{ y = Slice<starts=[0, -2], ends=[1, 4]>(x) }", 9),
        ("{ y, i = TopK(x, k) }", 10),
        ("{ a = Greater(x, h) b = Less(x, q) c = Equal(a, b) y = Cast<to=1>(c) }", 13),
        ("{ y = Unsqueeze(x, z) }", 13),
    ],
)
def test_forms_that_exporters_write(text: str, opset: int) -> None:
    constants = "<int64[1] k={3}, float h={0.5}, float q={1}, int64 z={1}>"
    x = np.random.default_rng(0).random((2, 4), "float32")
    agree_with_onnx_runtime(
        parsed(f"(float[2,4] x) => (float[a,b] y) {constants} {text}", opset), x
    )


def test_functions_of_the_model_are_inlined() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[3] x) => (float[3] y) '
        '{ y = own.twice<by=3.0>(x) } <domain: "own", opset_import: ["": 17]> '
        "twice<by>(a) => (c) { k = Constant<value_float: float = @by>() b = Mul(a, k) c = Abs(b) }"
    )
    agree_with_onnx_runtime(proto, np.array([1, -2, 3], "float32"))
    own = tvmlab.load(proto, converters={"own::twice": lambda bb, inputs, attributes: inputs[0]})
    np.testing.assert_array_equal(tvmlab.compile(own)(np.ones(3, "float32")), np.ones(3))


def test_softmax_of_a_constant_is_flattened_before_opset_13() -> None:
    text = (
        "(float[1,2,2] x) => (float[1,2,2] y) <float[1,2,2] c={0,1,2,3}> "
        "{ s = Softmax(c) y = Add(x, s) }"
    )
    agree_with_onnx_runtime(parsed(text, 11), np.zeros((1, 2, 2), "float32"))


@pytest.mark.parametrize(
    "text",
    [
        "(int32[2,3] x) => (int32[2] y) { y = ReduceMean<axes=[1], keepdims=0>(x) }",
        "(float[1,1,1,4] x) => (float[1,1,1,2] y) "
        "{ y = LpPool<kernel_shape=[1,3], strides=[1,2], ceil_mode=1>(x) }",
    ],
)
def test_refused_rather_than_wrong(text: str) -> None:
    with pytest.raises(UnsupportedOperatorError):
        tvmlab.load(parsed(text, 13 if "int32" in text else 22))
