"""ONNX operators that upstream lacks or gets wrong: the same results as ONNX and its runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 (registers the small floats with NumPy)
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tvmlab
from tests.oracles.models import FLOAT, agree_with_onnx_runtime, array, model, node, value, weight
from tests.oracles.onnx_backend import Model, backend_tests
from tvmlab.errors import UnsupportedOperatorError

INT64, BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL

# One or more of ONNX's own tests for each operator that `tvmlab.frontend` converts itself.
CASES = [
    "attention_4d_gqa",
    "attention_3d_causal",
    "attention_local_window_gqa_rank4_mask",
    "bitcast_int8_to_uint8",
    "batchnorm_example_training_mode",
    "bitshift_left_int32_shift_ge_width",
    "center_crop_pad_crop",
    "bitshift_right_uint16",
    "blackmanwindow",
    "castlike_FLOAT_to_DOUBLE",
    "causal_conv_with_state_basic",
    "celu",
    "col2im_pads",
    "col2im_strides",
    "convtranspose_output_shape",
    "cumprod_2d_axis_1",
    "cumsum_1d_exclusive",
    "cumsum_1d_reverse",
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
    "reduce_max_bool_inputs",
    "reduce_min_empty_set",
    "resize_downsample_scales_cubic_antialias",
    "resize_tf_crop_and_resize",
    "resize_upsample_sizes_nearest_axes_2_3",
    "reversesequence_time",
    "rms_normalization_2d_axis1",
    "rotary_embedding",
    "scan9_sum",
    "sce_mean_weight_ii_4d",
    "shape_start_1",
    "simple_rnn_bidirectional",
    "spacetodepth_crd_mode_example",
    "stft_with_window",
    "swiglu",
    "tensorscatter_circular",
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
        ("Cast", [(2, 3)], {"to": onnx.TensorProto.INT4}, "of float32 to int4"),
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
