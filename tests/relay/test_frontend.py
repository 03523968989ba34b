"""Relay's importers: what they take and give is Relay's, the numbers are the model's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import tvmlab
from tests.oracles.litert import convolutional
from tests.oracles.models import array, model, node, weight
from tests.oracles.networks import by_onnxruntime, by_torch
from tests.short import long
from tvmlab import models, relay
from tvmlab.errors import ModelError, RelayError, ShapeError
from tvmlab.relay.graph_executor import GraphModule

torch = pytest.importorskip("torch", reason="torch is not installed")


def run(mod: Any, params: Any, level: int = 0, **inputs: np.ndarray) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(mod, target="llvm", params=params)
    module = GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input(**inputs)
    module.run()
    return module.get_output(0).numpy()


def linear(name: str = "x") -> Any:
    w = weight("onnx::w.1", array(3, 4, seed=1))
    return model([node("MatMul", [name, "onnx::w.1"], ["y"])], {name: (2, 3)}, ["y"], [w])


@pytest.mark.parametrize(("level", "freeze"), [(0, False), (3, True)])
def test_the_listing_of_then(level: int, freeze: bool) -> None:
    onnx_model = models.digits_resnet(batch=1).proto
    x = models.digits().x_test[:1]
    input_name = onnx_model.graph.input[0].name
    shape_dict = {input_name: x.shape}

    mod, params = relay.frontend.from_onnx(onnx_model, shape_dict, freeze_params=freeze)
    output = run(mod, params, level, **{input_name: x})

    np.testing.assert_allclose(output, by_onnxruntime(onnx_model, x), rtol=1e-4, atol=1e-5)
    names = [param.name for param in mod["main"].params]
    weights = {tensor.name for tensor in onnx_model.graph.initializer}
    assert names[0] == input_name
    assert set(names[1:]) == params.keys() == (set() if freeze else weights)
    assert list(mod["main"].attrs.keys()) == ["global_symbol"]


def test_names_of_weights() -> None:
    proto, x = linear("in.put 1"), array(2, 3)
    mod, params = relay.frontend.from_onnx(proto, freeze_params=False)
    assert [param.name for param in mod["main"].params] == ["in.put 1", "w.1"]
    assert list(params) == ["w.1"]
    np.testing.assert_array_equal(params["w.1"].numpy(), array(3, 4, seed=1))
    found = run(mod, params, **{"in.put 1": x})
    np.testing.assert_allclose(found, by_onnxruntime(proto, x), rtol=1e-5)
    with pytest.raises(RelayError, match=r"takes an onnx\.ModelProto, not a str"):
        relay.frontend.from_onnx("model.onnx")


def test_shapes_dtypes_and_opsets() -> None:
    rows = model([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}, ["y"])
    for free in (relay.Any(), -1):
        mod, _ = relay.frontend.from_onnx(rows, {"x": (free, 3)})
        assert isinstance(mod["main"].params[0].ty.shape[0], tvm.tirx.Var)
    mod, _ = relay.frontend.from_onnx(rows, {"x": (5, 3)}, dtype={"x": "float32"})
    assert mod["main"].params[0].ty == relay.TensorType((5, 3))
    for given, error, what in (
        ({"shape": {"y": (2, 3)}}, ShapeError, "no input named 'y'"),
        ({"shape": None}, ShapeError, "open dimensions"),
        ({"dtype": {"x": "int8"}, "shape": {"x": (2, 3)}}, ShapeError, "is float32 in the model"),
        ({"opset": 13}, RelayError, "carry opset"),
    ):
        with pytest.raises(error, match=what):
            relay.frontend.from_onnx(rows, **given)  # type: ignore[arg-type]


def test_tflite() -> None:
    tflite = pytest.importorskip("tflite", reason="tflite is not installed")
    content = convolutional()
    x = array(1, 8, 8, 2)
    mod, params = relay.frontend.from_tflite(content)
    (first,) = (param.name for param in mod["main"].params)
    assert params == {}
    made = run(mod, params, **{first: x})
    np.testing.assert_allclose(made, tvmlab.compile(tvmlab.load(content))(x), rtol=1e-5, atol=1e-6)
    parsed = tflite.Model.GetRootAsModel(content, 0)
    again, _ = relay.frontend.from_tflite(parsed, {first: (1, 8, 8, 2)}, {first: "float32"})
    tvm.ir.assert_structural_equal(again, mod)
    with pytest.raises(ShapeError, match=r"is \(1, 8, 8, 2\) in the model"):
        relay.frontend.from_tflite(content, {first: (1, 2, 8, 8)})
    with pytest.raises(ShapeError, match="is float32 in the model"):
        relay.frontend.from_tflite(content, dtype_dict={first: "int8"})


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=long) for kind in ("traced", "exported")), "module"]
)
def test_pytorch(kind: str) -> None:
    network = models.torch_digits_resnet().eval()
    x = models.digits().x_test[:1]
    sample = torch.from_numpy(x)
    given = {
        "traced": lambda: torch.jit.trace(network, sample).eval(),
        "exported": lambda: torch.export.export(network, (sample,)),
        "module": lambda: network,
    }[kind]()
    mod, params = relay.frontend.from_pytorch(given, [("input0", x.shape)])
    first, *rest = (param.name for param in mod["main"].params)
    assert first == "input0"
    assert rest == list(params)
    assert set(rest) <= set(network.state_dict())
    name = rest[0]
    np.testing.assert_array_equal(params[name].numpy(), network.state_dict()[name].numpy())
    np.testing.assert_allclose(
        run(mod, params, input0=x), by_torch(network, x), rtol=1e-4, atol=1e-5
    )


def test_pytorch_arguments() -> None:
    class Add(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    mod, params = relay.frontend.from_pytorch(
        Add(), [("a", ((2,), "int32")), ("b", [2])], default_dtype="int32"
    )
    assert params == {}
    assert [str(param.ty.dtype) for param in mod["main"].params] == ["int32", "int32"]
    for given, error, what in (
        ([("a", (2,))], ModelError, "cannot be exported"),
        (["a"], RelayError, "an input must be"),
    ):
        with pytest.raises(error, match=what):
            relay.frontend.from_pytorch(Add(), given)
    exported = torch.export.export(Add(), (torch.zeros(2), torch.zeros(2)))
    with pytest.raises(RelayError, match="2 inputs, but input_infos names 1"):
        relay.frontend.from_pytorch(exported, [("a", (2,))])
