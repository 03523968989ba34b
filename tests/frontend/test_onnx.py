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
    dense,
    model,
    node,
    said,
    value,
    weight,
)
from tvmlab.errors import ModelError, UnsupportedOperatorError

IMAGE = (1, 3, 8, 8)


@settings(max_examples=8)
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 1),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
)
def test_conv(kernel: int, stride: int, padding: int, groups: int, bias: bool) -> None:
    weights = [weight("w", array(4, 4 // groups, kernel, kernel))]
    if bias:
        weights.append(weight("b", array(4)))
    conv = node(
        *("Conv", ["x", *(w.name for w in weights)], ["y"]),
        strides=[stride] * 2,
        pads=[padding] * 4,
        group=groups,
    )
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
    ],
)
def test_operators(operator: str, attributes: dict[str, Any]) -> None:
    proto = model([node(operator, ["x"], ["y"], **attributes)], {"x": IMAGE}, ["y"])
    agree_with_onnx_runtime(proto, array(*IMAGE))


@pytest.mark.parametrize(
    "attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 2.0, "transA": 1}], ids=str
)
def test_gemm(attributes: dict[str, Any]) -> None:
    shape = (4, 2) if attributes.get("transA") else (2, 4)
    w = array(3, 4) if attributes.get("transB") else array(4, 3)
    gemm = node("Gemm", ["x", "w", "b"], ["y"], **attributes)
    proto = model([gemm], {"x": shape}, ["y"], [weight("w", w), weight("b", array(3))])
    agree_with_onnx_runtime(proto, array(*shape))


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 18])
def test_old_and_new_opsets(opset: int) -> None:
    proto = model(
        [node("Gemm", ["x", "w", "b"], ["g"]), node("Softmax", ["g"], ["y"], axis=1)],
        {"x": (2, 4)},
        ["y"],
        [weight("w", array(4, 3)), weight("b", array(3))],
        opset=opset,
        ir_version=4,
    )
    agree_with_onnx_runtime(proto, array(2, 4))


def test_weights_that_are_listed_as_inputs_too() -> None:
    weights = [weight("w", array(4, 3))]
    inputs = [value("x", FLOAT, (2, 4)), value("w", FLOAT, (4, 3))]
    old = model(
        *([node("MatMul", ["x", "w"], ["y"])], inputs, [value("y", FLOAT, (2, 3)), *()], weights),
        opset=7,
        ir_version=3,
    )
    executable = tvmlab.compile(tvmlab.load(old))
    assert [given.name for given in executable.signature.inputs] == ["x"]
    np.testing.assert_allclose(executable(array(2, 4)), array(2, 4) @ array(4, 3), rtol=1e-5)


def test_several_outputs_one_of_them_an_input_one_a_weight() -> None:
    proto = model(
        [node("Relu", ["x"], ["y"])],
        {"x": (2, 3), "unused": (1,)},
        ["y", value("x", FLOAT, (2, 3)), value("w", FLOAT, (3,))],
        [weight("w", array(3))],
    )
    agree_with_onnx_runtime(proto, array(2, 3), array(1))
    made = tvmlab.compile(tvmlab.load(proto)).signature
    assert [one.name for one in made.outputs] == ["y", "x", "w"]


@pytest.mark.parametrize("names", [("ö.ü/✓ x:0", "a b"), ("a.b", "a_b"), ("0", "1"), ("x", "X")])
def test_inputs_keep_their_order_under_any_name(names: tuple[str, str]) -> None:
    proto = model([node("Sub", list(names), ["y"])], dict.fromkeys(names, (2,)), ["y"])
    agree_with_onnx_runtime(proto, array(2, seed=1), array(2, seed=2))


def test_a_dynamic_batch() -> None:
    executable = tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("batch", 4)}))
    for batch in (1, 5):
        x = array(batch, 4)
        np.testing.assert_allclose(executable(x), x @ array(4, 3), rtol=1e-4, atol=1e-5)
    with pytest.raises(tvmlab.errors.InputError, match=r"has shape \(5, 3\), not \(batch, 4\)"):
        executable(array(5, 3))


# Operators that the importer does not know.


def unsupported(proto: onnx.ModelProto) -> UnsupportedOperatorError:
    with pytest.raises(UnsupportedOperatorError) as caught:
        tvmlab.load(proto)
    said(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("operator", "domain", "named"),
    [
        ("Frobnicate", "", "Frobnicate"),
        ("Frobnicate", "com.acme", "com.acme.Frobnicate"),
        ("Relu", "com.acme", "com.acme.Relu"),  # ONNX's name, someone else's meaning
        ("Frobnicate", "com.microsoft", "com.microsoft.Frobnicate"),
        ("Binarizer", "ai.onnx.ml", "ai.onnx.ml.Binarizer"),
        ("Det", "", "Det"),  # ONNX's, and not known to the importer
    ],
)
def test_an_unsupported_operator_is_named(operator: str, domain: str, named: str) -> None:
    made = node(operator, ["x"], ["y"], name="block/1", domain=domain)
    proto = model(
        [made], {"x": (2, 2)}, [value("y", FLOAT, ())], domains=[domain] if domain else []
    )
    error = unsupported(proto)
    assert error.what == f"TVM cannot import the ONNX operator {named}"
    assert error.where == f"ModelProto: {operator} in node 'block/1'"


def test_unsupported_operators_are_found_in_branches_and_without_a_name() -> None:
    def branch(operator: str) -> Any:
        out = value("b", FLOAT, (2,))
        return helper.make_graph([node(operator, ["x"], ["b"], name=operator)], "b", [], [out])

    chosen = node("If", ["c"], ["r"], then_branch=branch("Relu"), else_branch=branch("Frobnicate"))
    inputs = [value("c", TensorProto.BOOL, ()), value("x", FLOAT, (2,))]
    nodes = [chosen, node("Nonsense", ["r"], ["y"])]
    error = unsupported(model(nodes, inputs, [value("y", FLOAT, (2,))]))
    assert error.what == "TVM cannot import the ONNX operator Frobnicate, Nonsense"
    place = "Frobnicate in node 'Frobnicate'; Nonsense giving ['y']"
    assert error.where == f"ModelProto: {place}"


def test_contributed_operators_of_onnx_runtime_are_imported() -> None:
    gelu = node("Gelu", ["x"], ["y"], domain="com.microsoft")
    proto = model([gelu], {"x": (2, 3)}, [value("y", FLOAT, (2, 3))], domains=["com.microsoft"])
    agree_with_onnx_runtime(proto, array(2, 3))


# Models that are no valid ONNX.


SEQUENCE = helper.make_tensor_sequence_value_info("x", FLOAT, [2, 4])
WRONG_SIZE = value("x", FLOAT, (2, 5))
#: What is done to a model that is right, and the error's words.
BROKEN: dict[str, tuple[Callable[[onnx.ModelProto], Any], str]] = {
    "undefined value": (
        lambda proto: proto.graph.node[0].input.__setitem__(0, "nowhere"),
        "not valid ONNX",
    ),
    "weight cut": (
        lambda proto: setattr(proto.graph.initializer[0], "raw_data", bytes(4)),
        "not valid ONNX",
    ),
    "wrong size": (
        lambda proto: proto.graph.input[0].CopyFrom(WRONG_SIZE),
        "TVM's importer failed on operator MatMul",
    ),
    "sequence": (
        lambda proto: proto.graph.input[0].CopyFrom(SEQUENCE),
        "input 'x' is a sequence_type, not a tensor",
    ),
}


@pytest.mark.parametrize("change", BROKEN)
def test_invalid_models(change: str) -> None:
    proto = dense()
    BROKEN[change][0](proto)
    with pytest.raises(ModelError) as caught:
        tvmlab.load(proto)
    assert BROKEN[change][1] in said(caught.value)


# Weights in files of their own.

PLACES = ["weight", "branch"]


def external(place: str, location: str, **more: str) -> onnx.ModelProto:
    """`y = x + w`, w's two numbers at a location, as a weight or in a branch."""
    tensor = TensorProto(name="w", dims=[2], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=text)
    nodes, weights = [node("Add", ["x", "w"], ["y"])], [tensor]
    if place == "branch":
        constant = node("Constant", [], ["b"])
        constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
        graph = helper.make_graph([constant], "b", [], [value("b", FLOAT, (2,))])
        weights = [weight("yes", np.array(True))]
        nodes.insert(0, node("If", ["yes"], ["w"], then_branch=graph, else_branch=graph))
    return model(nodes, {"x": (2,)}, [value("y", FLOAT, (2,))], weights)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder with weights, a secret beside it, and links to the secret in it."""
    inside = tmp_path / "model"
    (inside / "deep").mkdir(parents=True)
    np.float32([1, 2]).tofile(inside / "w.bin")  # type: ignore[attr-defined]
    np.float32([3, 4]).tofile(inside / "deep" / "w.bin")  # type: ignore[attr-defined]
    (inside / "short.bin").write_bytes(bytes(4))
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(8))
    (inside / "link.bin").symlink_to(secret)
    (inside / "up").symlink_to(tmp_path)
    os.link(secret, inside / "hard.bin")
    monkeypatch.chdir(tmp_path)  # where a reader that forgets the folder would look
    return inside


def write(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(("location", "sum_"), [("w.bin", 3), ("deep/w.bin", 7)])
def test_weights_beside_the_model(folder: Path, location: str, sum_: float) -> None:
    path = write(folder, external("weight", location))
    result = tvmlab.compile(tvmlab.load(path))(np.zeros(2, "float32"))
    assert result.sum() == sum_
    os.chdir(folder)
    tvm.ir.assert_structural_equal(tvmlab.load("model.onnx"), tvmlab.load(path))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location", ["../secret.bin", "/", "link.bin", "up/secret.bin", "hard.bin", "missing.bin", ""]
)
def test_weights_elsewhere_are_refused(folder: Path, place: str, location: str) -> None:
    if location == "/":
        location = str(folder.parent / "secret.bin")
    path = write(folder, external(place, location))
    with pytest.raises(ModelError, match="the model's weights cannot be read") as caught:
        tvmlab.load(path)
    assert caught.value.where == f"{path}: tensor 'w'"
    assert f"into {folder}" in said(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_weights_that_are_too_short(folder: Path, place: str) -> None:
    wrong = [{"offset": offset} for offset in ("4", "99", "-4", "one")]
    wrong += [{"length": length} for length in ("99", "4", "-1")]
    for location, more in (("short.bin", {}), *(("w.bin", each) for each in wrong)):
        path = write(folder, external(place, location, **more))
        with pytest.raises(ModelError) as caught:
            tvmlab.load(path)
        assert str(path) in said(caught.value)
