"""ONNX models: the same numbers as ONNX Runtime; foreign operators and weights refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tvmlab
from tests.oracles.models import (
    FLOAT,
    agree_with_onnx_runtime,
    array,
    by_onnx_runtime,
    dense,
    model,
    node,
    quickly,
    said,
    value,
    weight,
)
from tests.oracles.onnx_qnn import close, parameters
from tvmlab.errors import ModelError, UnsupportedOperatorError
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger


@settings(max_examples=8)
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
)
def test_conv(kernel: int, stride: int, padding: int, groups: int, bias: bool) -> None:
    weights = [weight("w", array(4, 4 // groups, kernel, kernel)), weight("b", array(4))]
    weights = weights[: 1 + bias]
    how: dict[str, Any] = {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
    conv = node("Conv", ["x", *(w.name for w in weights)], ["y"], **how)
    agree_with_onnx_runtime(model([conv], {"x": (1, 4, 6, 6)}, ["y"], weights), array(1, 4, 6, 6))


WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", WINDOW),
        ("AveragePool", WINDOW),
        ("AveragePool", {**WINDOW, "count_include_pad": 1}),
        ("GlobalAveragePool", {}),
        ("Softmax", {"axis": 1}),
        ("LogSoftmax", {"axis": -1}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Flatten", {"axis": 2}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("ReduceMean", {"axes": [2, 3], "keepdims": 0}),
        ("Gelu", {"domain": "com.microsoft"}),
    ],
)
def test_operators(operator: str, attributes: dict[str, Any]) -> None:
    image, domains = (1, 3, 8, 8), [attributes["domain"]] if "domain" in attributes else []
    out = value("y", FLOAT, image) if domains else "y"
    nodes = [node(operator, ["x"], ["y"], **attributes)]
    agree_with_onnx_runtime(model(nodes, {"x": image}, [out], domains=domains), array(*image))


@pytest.mark.parametrize(
    ("attributes", "opset"),
    [
        *(({}, opset) for opset in (7, 9, 12, 13, 18)),
        ({"transB": 1}, 17),
        ({"alpha": 0.5, "beta": 2.0, "transA": 1}, 17),
    ],
    ids=str,
)
def test_old_and_new_opsets(attributes: dict[str, Any], opset: int) -> None:
    shape = (4, 2) if attributes.get("transA") else (2, 4)
    w = array(3, 4) if attributes.get("transB") else array(4, 3)
    gemm = node("Gemm", ["x", "w", "b"], ["g"], **attributes)
    proto = model(
        [gemm, node("Softmax", ["g"], ["y"], axis=1)],
        *({"x": shape}, ["y"], [weight("w", w), weight("b", array(3))]),
        **{"opset": opset, "ir_version": 4},
    )
    agree_with_onnx_runtime(proto, array(*shape))


def test_weights_and_inputs_in_several_roles() -> None:
    """A weight that is listed as an input too, and outputs that are an input or a weight."""
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", FLOAT, (2, 4)), value("w", FLOAT, (4, 3)), value("unused", FLOAT, (1,))],
        [value("y", FLOAT, (2, 3)), value("x", FLOAT, (2, 4)), value("w", FLOAT, (4, 3))],
        [weight("w", array(4, 3))],
        **{"opset": 7, "ir_version": 3},
    )
    made = tvmlab.compile(tvmlab.load(proto)).signature
    assert [one.name for one in made.inputs] == ["x", "unused"]
    assert [one.name for one in made.outputs] == ["y", "x", "w"]
    agree_with_onnx_runtime(proto, array(2, 4), array(1))


@pytest.mark.parametrize("names", [("ö.ü/✓ x:0", "a b"), ("a.b", "a_b"), ("0", "1"), ("x", "X")])
def test_inputs_keep_their_order_under_any_name(names: tuple[str, str]) -> None:
    proto = model([node("Sub", list(names), ["y"])], dict.fromkeys(names, (2,)), ["y"])
    agree_with_onnx_runtime(proto, array(2, seed=1), array(2, seed=2))


# Operators that the importer does not know, and models that are no valid ONNX


def foreign(operator: str, domain: str = "") -> onnx.ModelProto:
    nodes = [node(operator, ["x"], ["y"], name="block/1", domain=domain)]
    domains = [domain] if domain else []
    return model(nodes, {"x": (2, 2)}, [value("y", FLOAT, ())], domains=domains)


def branched() -> onnx.ModelProto:
    """A model with an unknown operator in a branch, and one without a name."""
    both = [
        helper.make_graph([node(kind, ["x"], ["b"], name=kind)], "b", [], [value("b", FLOAT, (2,))])
        for kind in ("Relu", "Frobnicate")
    ]
    chosen = node("If", ["c"], ["r"], then_branch=both[0], else_branch=both[1])
    inputs = [value("c", TensorProto.BOOL, ()), value("x", FLOAT, (2,))]
    return model([chosen, node("Nonsense", ["r"], ["y"])], inputs, [value("y", FLOAT, (2,))])


def broken(change: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    change(proto := dense())
    return proto


SEQUENCE = helper.make_tensor_sequence_value_info("x", FLOAT, [2, 4])
WIDE = value("x", FLOAT, (2, 5))
IN_BRANCHES = "Frobnicate in node 'Frobnicate'; Nonsense giving ['y']"
#: A model, the error's words, and its place.
UNSUPPORTED: list[tuple[onnx.ModelProto, str, str]] = [
    (branched(), "ONNX operator Frobnicate, Nonsense", IN_BRANCHES),
    *(
        (foreign(operator, domain), f"ONNX operator {named}", f"{operator} in node 'block/1'")
        for operator, domain, named in (
            ("Frobnicate", "", "Frobnicate"),
            ("Relu", "com.acme", "com.acme.Relu"),  # ONNX's name, another meaning
            ("Frobnicate", "com.microsoft", "com.microsoft.Frobnicate"),
            ("Det", "", "Det"),  # ONNX's, and not known to the importer
        )
    ),
]
WRONG: list[tuple[onnx.ModelProto, str, str]] = [
    (broken(lambda p: p.graph.node[0].input.__setitem__(0, "?")), "not valid ONNX", ""),
    (broken(lambda p: setattr(p.graph.initializer[0], "raw_data", b"1234")), "not valid ONNX", ""),
    (broken(lambda p: p.graph.input[0].CopyFrom(WIDE)), "operator MatMul", "MatMul giving ['y']"),
    (broken(lambda p: p.graph.input[0].CopyFrom(SEQUENCE)), "'x' is a sequence_type", "inputs"),
]


@pytest.mark.parametrize(
    ("kind", "proto", "what", "where"),
    [(ModelError, *row) for row in WRONG]
    + [(UnsupportedOperatorError, *row) for row in UNSUPPORTED],
)
def test_a_model_that_cannot_be_imported_is_refused(
    kind: type[ModelError], proto: onnx.ModelProto, what: str, where: str
) -> None:
    with pytest.raises(kind) as caught:
        tvmlab.load(proto)
    assert type(caught.value) is kind
    assert what in caught.value.what
    assert where in str(caught.value.where)
    said(caught.value)


# Weights in files of their own


def external(location: str, **more: str) -> bytes:
    """`y = x + w`, w's two numbers at a location, as a weight and in a branch."""
    tensor = TensorProto(name="w", dims=[2], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=text)
    constant, out = node("Constant", [], ["b"]), value("b", FLOAT, (2,))
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    branch = helper.make_graph([constant], "b", [], [out])
    chosen = node("If", ["yes"], ["v"], then_branch=branch, else_branch=branch)
    nodes = [chosen, node("Sum", ["x", "v", "w"], ["y"])]
    weights = [tensor, weight("yes", np.array(True))]
    proto = model(nodes, {"x": (2,)}, [value("y", FLOAT, (2,))], weights)
    content: bytes = proto.SerializeToString()
    return content


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder with weights, a secret beside it, and links to the secret in it."""
    inside = tmp_path / "model"
    (inside / "deep").mkdir(parents=True)
    np.float32([1, 2]).tofile(inside / "deep" / "w.bin")  # type: ignore[attr-defined]
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    os.link(tmp_path / "secret.bin", inside / "hard.bin")
    monkeypatch.chdir(tmp_path)  # where a reader that forgets the folder would look
    return inside


def test_weights_beside_the_model(folder: Path) -> None:
    (path := folder / "model.onnx").write_bytes(external("deep/w.bin"))
    mod = tvmlab.load(path)
    assert tvmlab.compile(mod)(np.zeros(2, "float32")).tolist() == [2, 4]
    os.chdir(folder)
    tvm.ir.assert_structural_equal(tvmlab.load("model.onnx"), mod)


@pytest.mark.parametrize(
    ("location", "more"),
    [
        *((name, {}) for name in ("../secret.bin", "/", "link.bin", "hard.bin", "missing")),
        ("deep/w.bin", {"offset": "99"}),
        ("deep/w.bin", {"length": "99"}),
    ],
)
def test_weights_elsewhere_are_refused(folder: Path, location: str, more: dict[str, str]) -> None:
    location = str(folder.parent / "secret.bin") if location == "/" else location
    (path := folder / "model.onnx").write_bytes(external(location, **more))
    with pytest.raises(ModelError, match="the model's weights cannot be read") as caught:
        tvmlab.load(path)
    assert caught.value.where == str(path)
    assert f"into {folder}" in said(caught.value)


# Padding: as an operator, and with integers between integers

to_integer: Any = FakeQuantizationToInteger()
X = array(1, 3, 6, 6)
WIDTHS = weight("widths", np.array([0, 0, 1, 2, 0, 0, 0, 1]))


@pytest.mark.parametrize(
    ("mode", "by"),
    [
        *(("constant", by) for by in (None, np.float32(0), np.float32(0.1), np.uint8(5))),
        *((mode, None) for mode in ("reflect", "edge", "wrap")),
    ],
)
def test_a_pad_is_an_operator(mode: str, by: Any) -> None:
    integer = isinstance(by, np.uint8)
    kind = TensorProto.UINT8 if integer else TensorProto.FLOAT
    parts = [WIDTHS] if by is None else [WIDTHS, weight("by", by)]
    proto = model(
        [node("Pad", ["x", *(part.name for part in parts)], ["y"], mode=mode)],
        *([value("x", kind, X.shape)], [value("y", kind, None)], parts),
        opset=19,  # the first that knows "wrap"
    )
    assert tvmlab.load(proto).script().count("R.nn.pad(x, pad_width=[0, 0, 0, 0, 1, 0, 2, 1]") == 1
    agree_with_onnx_runtime(proto, (X * 10 + 100).astype("uint8") if integer else X)


def test_widths_that_cut_and_batches_of_any_size() -> None:
    widths = weight("widths", np.array([0, 0, -1, 1, 0, 0, 2, -3]))
    proto = model([node("Pad", ["x", "widths"], ["y"])], {"x": ("n", 3, 6, 6)}, ["y"], [widths])
    shapes = {"x": ("n", 3, 6, 6)}
    mod = tvmlab.load(proto, shapes=shapes)
    assert "pad_width=[0, 0, 0, 0, -1, 2, 1, -3]" in mod.script()
    agree_with_onnx_runtime(proto, array(2, 3, 6, 6), shapes=shapes)


def quantized(middle: list[Any], parts: list[Any], kind: str, out: str = "a") -> Any:
    """Operators from "d" to "p" between integers, of scale `a` before and `out` after them."""
    nodes = [
        node("QuantizeLinear", ["x", "a_s", "a_z"], ["q"]),
        node("DequantizeLinear", ["q", "a_s", "a_z"], ["d"]),
        *middle,
        node("QuantizeLinear", ["p", f"{out}_s", f"{out}_z"], ["r"]),
        node("DequantizeLinear", ["r", f"{out}_s", f"{out}_z"], ["y"]),
    ]
    parts = [WIDTHS, *parts, *parameters("a", 0.02, 3, kind)]
    return model(nodes, {"x": X.shape}, ["y"], parts)


def integral(proto: Any) -> np.ndarray:
    """Run the integer form of a model that has one."""
    before = proto.SerializeToString()
    mod = to_integer(tvmlab.load(proto))
    assert proto.SerializeToString() == before
    assert float_operators(mod) == []
    return quickly(mod, X)[0]


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_quantized_mirror(mode: str) -> None:
    proto = quantized([node("Pad", ["d", "widths"], ["p"], mode=mode)], [], "uint8")
    np.testing.assert_array_equal(
        quickly(to_integer(tvmlab.load(proto)), X)[0], by_onnx_runtime(proto, X)[0]
    )


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_quantized_value_to_pad_with_is_a_constant(kind: str, quantize: bool) -> None:
    """As ONNX Runtime's quantizer writes it, and with the quantize not yet computed."""
    middle = [
        *([node("QuantizeLinear", ["by", "a_s", "a_z"], ["by_q"])] if quantize else []),
        node("DequantizeLinear", ["by_q", "a_s", "a_z"], ["by_d"]),
        node("Pad", ["d", "widths", "by_d"], ["p"]),
    ]
    by = weight("by", np.float32(0.27)) if quantize else weight("by_q", np.array(27, kind))
    proto = quantized(middle, [by], kind)
    np.testing.assert_array_equal(integral(proto), by_onnx_runtime(proto, X)[0])


def test_a_quantized_convolution_with_same_is_in_integers() -> None:
    middle = [
        node("DequantizeLinear", ["w", "w_s", "w_z"], ["wd"]),
        node("Conv", ["d", "wd"], ["p"], auto_pad="SAME_LOWER", strides=[2, 2]),
    ]
    parts = [*parameters("b", 0.05, 120, "uint8"), *parameters("w", 0.01, 0, "int8")]
    parts.append(weight("w", (array(4, 3, 3, 3) * 40).astype("int8")))
    proto = quantized(middle, parts, "uint8", "b")
    close(integral(proto), by_onnx_runtime(proto, X)[0], steps=0.051, share=0.02)


SAME: list[tuple[str, dict[str, Any]]] = [
    ("Conv", {"strides": [2, 2]}),
    ("Conv", {"strides": [3, 3], "kernel_shape": [3, 3]}),
    ("MaxPool", {"strides": [2, 2], "kernel_shape": [3, 2]}),
    ("AveragePool", {"strides": [2, 2], "kernel_shape": [3, 2]}),
    ("AveragePool", {"strides": [2, 2], "kernel_shape": [3, 2], "count_include_pad": 1}),
]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kind", "more"), SAME)
def test_same_is_written_as_widths(kind: str, more: dict[str, Any], mode: str) -> None:
    conv = kind == "Conv"
    nodes = [node(kind, ["x", "w"] if conv else ["x"], ["y"], auto_pad=mode, **more)]
    parts = [weight("w", array(4, 3, 3, 3))] if conv else []
    proto = model(nodes, {"x": ("n", 3, 7, 6)}, ["y"], parts)
    agree_with_onnx_runtime(proto, array(1, 3, 7, 6), shapes={"x": (1, 3, 7, 6)})
    text = tvmlab.load(proto, shapes={"x": (1, 3, 7, 6)}).script()
    assert "R.call_tir(" not in text
    assert "R.nn.pad(" not in text


def test_same_of_a_picture_of_any_size() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")]
    proto = model(nodes, {"x": (1, 3, "h", 6)}, ["y"], [weight("w", array(4, 3, 3, 3))])
    agree_with_onnx_runtime(proto, array(1, 3, 7, 6), shapes={"x": (1, 3, "h", 6)})


# Operators that upstream converts wrongly

PLANES, ODD = array(1, 2, 6, 5), np.array([1, np.inf, -np.inf, np.nan], "float32")


def one_operator(kind: str, x: Any, *constants: Any, outputs: int = 1, **more: Any) -> Any:
    """Make a model of one operator; an operand that is None is left out."""
    names = ["" if constant is None else f"c{i}" for i, constant in enumerate(constants)]
    parts = [weight(name, part) for name, part in zip(names, constants, strict=True) if name]
    given_x = value("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    made = node(kind, ["x", *names], [f"y{i}" for i in range(outputs)], **more)
    results = [onnx.ValueInfoProto(name=name) for name in made.output]
    return model([made], [given_x], results, parts, opset=18)


@pytest.mark.parametrize(
    ("kind", "x", "constants", "more"),
    [
        ("Shape", PLANES, (), {"start": 1, "end": -1}),
        ("IsInf", ODD, (), {"detect_negative": 0}),
        ("IsInf", ODD, (), {"detect_positive": 0}),
        ("OneHot", np.array([1, -1]), (np.array(4), np.array([-1, 3], "float32")), {}),
        ("Resize", PLANES, (None, np.array([1, 1, 0.5, 3], "float32")), {"mode": "linear"}),
        ("Resize", PLANES, (None, np.array([1, 1, 0.6, 1], "float32")), {}),
        ("LayerNormalization", PLANES, (np.ones(PLANES.shape[-1], "float32"),), {"outputs": 2}),
    ],
)
def test_corrected_operators(
    kind: str, x: np.ndarray, constants: tuple[Any, ...], more: Any
) -> None:
    agree_with_onnx_runtime(one_operator(kind, x, *constants, **more), x, close=1e-5)
