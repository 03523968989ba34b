"""Converters of users, for both frontends, against ONNX Runtime and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from tvm import relax

import tvmlab
from tvmlab import bench
from tvmlab.errors import ModelError, TvmlabError, UnsupportedOperatorError

X = np.random.default_rng(0).standard_normal((2, 6)).astype("float32")


@torch.library.custom_op("opendoor::swish", mutates_args=())
def swish(x: torch.Tensor, beta: float = 1.5) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


@torch.library.custom_op("opendoor::relu", mutates_args=())  # not aten::relu
def halves(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@torch.library.custom_op("opendoor::parts", mutates_args=())
def parts(x: list[torch.Tensor], weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    return x[0] - x[1], x[0] * x[1]


swish.register_fake(lambda x, beta=1.5: torch.empty_like(x))
halves.register_fake(torch.empty_like)
parts.register_fake(lambda x, weight: (torch.empty_like(x[0]), torch.empty_like(x[0])))


class Program(torch.nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.function = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def program(forward: Callable[..., Any]) -> Any:
    return torch.export.export(Program(forward), (torch.from_numpy(X),))


def model(kind: str = "Swish", domain: str = "com.example", **attributes: Any) -> onnx.ModelProto:
    """Return Relu(kind(x)) and kind's definition for ONNX Runtime, x * Sigmoid(1.5 * x)."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 6]) for name in "xy"]
    nodes = [
        helper.make_node(kind, ["x"], ["s"], domain=domain, **attributes),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    opset, other = helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)
    body = [
        helper.make_node("Constant", [], ["b"], value_float=1.5),
        helper.make_node("Mul", ["a", "b"], ["ab"]),
        helper.make_node("Sigmoid", ["ab"], ["g"]),
        helper.make_node("Mul", ["a", "g"], ["c"]),
    ]
    function = helper.make_function(domain, kind, ["a"], ["c"], body, [opset], [*attributes])
    return helper.make_model(
        helper.make_graph(nodes, "g", values[:1], values[1:]),
        opset_imports=[opset, other] if domain else [opset],
        functions=[function] if domain else [],
        ir_version=10,
    )


def converted(bb: relax.BlockBuilder, inputs: list[Any], attributes: dict[str, Any]) -> relax.Expr:
    scale = relax.const(attributes.get("beta", 1.5), "float32")
    return relax.op.multiply(inputs[0], bb.emit(relax.op.sigmoid(inputs[0] * scale)))


def undefined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the definitions of a model's own operators."""
    del proto.functions[:]
    return proto


def run(source: Any, converters: Any) -> Any:
    return tvmlab.compile(tvmlab.load(source, converters=converters))(X)


def same(have: Any, want: Any) -> None:
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_a_converter_makes_an_operator_importable_or_replaces_its_converter() -> None:
    same(run(model(), {"com.example::Swish": converted}), bench.OnnxRuntime(model())(X))
    # ONNX's own domain, by both keys; an operator that neither the checker nor TVM knows.
    twice = lambda bb, inputs, attributes: inputs[0] + inputs[0]  # noqa: E731
    for key in ("Relu", "ai.onnx::Relu"):
        same(run(model("Abs", ""), {key: twice}), 2 * np.abs(X))
    same(run(model("EfficientSwish_TRT", ""), {"EfficientSwish_TRT": twice}), np.maximum(2 * X, 0))
    with pytest.raises(UnsupportedOperatorError, match=r"other\.Relu"):
        tvmlab.load(undefined(model("Relu", "other")), converters={"Relu": twice})


@pytest.mark.parametrize(
    ("forward", "converters", "want"),
    [
        (lambda x: swish(x, 2.0), {"opendoor::swish": converted}, None),
        (lambda x: swish(x).relu(), {"opendoor::swish.default": converted}, None),
        # An operator that PyTorch would decompose, and one of another library of the same name.
        (torch.nn.functional.silu, {"aten::silu": converted}, lambda x: swish(x)),
        (
            lambda x: halves(x) + x.relu(),
            {"opendoor::relu": lambda bb, inputs, _: inputs[0] / relax.const(2.0)},
            None,
        ),
        (
            lambda x: parts([x, x.abs()], None)[1],
            {"opendoor::parts": lambda bb, i, _: relax.Tuple([i[0] - i[1], i[0] * i[1]])},
            None,
        ),
    ],
)
def test_pytorch_operators(forward: Any, converters: Any, want: Any) -> None:
    same(run(program(forward), converters), (want or forward)(torch.from_numpy(X)).numpy())


def test_an_operator_of_another_library_is_not_taken_for_pytorchs() -> None:
    with pytest.raises(UnsupportedOperatorError, match="opendoor::relu"):
        tvmlab.load(program(halves))


@pytest.mark.parametrize(
    ("source", "kind", "lines"),
    [
        (
            undefined(model(beta=2.0, axes=[1])),
            "Swish",
            ["[x] = inputs", "[axes, beta] = [attributes['axes'], "],
        ),
        (program(lambda x: swish(x, 2.0)), "swish", ["[x] = inputs", "# 2.0"]),
        (program(lambda x: parts([x, x], None)), "parts", ["[x0, x1, weight] = inputs"]),
    ],
)
def test_the_error_has_the_code_of_a_converter(source: Any, kind: str, lines: list[str]) -> None:
    with pytest.raises(UnsupportedOperatorError, match=kind) as caught:
        tvmlab.load(source)
    code = caught.value.fix.split("\n")[1:]
    assert len(code) == 6
    assert code[1] == f"def convert_{kind}(bb, inputs, attributes):"
    assert all(line in "\n".join(code) for line in lines)
    # The code is complete but for the result.
    with pytest.raises(ModelError, match="returned Ellipsis"):
        exec("\n".join(code), {"tvmlab": tvmlab, "model": source})
    first = "\n".join(code).replace("return ...", "return inputs[0]")
    if kind != "parts":
        exec(first, done := {"tvmlab": tvmlab, "model": source})
        assert tvmlab.compile(done["mod"])(X).shape == X.shape


SWISH = program(swish)


@pytest.mark.parametrize(
    ("source", "converters", "what"),
    [
        (model(), [converted], "is a list, not a mapping"),
        (model(), {"com.example.Swish::": converted}, "names no operator"),
        (model(), {"com.example::Swish": 3}, "is a int, not a function"),
        (model(), {"com.example::Swish": lambda *_: None}, "returned None"),
        (model(), {"com.example::Swish": lambda *_: 1 / 0}, "raised ZeroDivisionError"),
        (model(), {"com.example::Swish": lambda bb: bb}, "raised TypeError"),
        (SWISH, {"swish": converted}, "names no operator"),
        (SWISH, {"opendoor::swish": lambda bb, x, _: relax.op.sum(x[0])}, "but PyTorch returns"),
        (SWISH, {"opendoor::swish": lambda bb, x, _: x[0].astype("int8")}, "but PyTorch returns"),
        (tvmlab.load(model("Abs", "")), {"Abs": converted}, "apply only to ONNX models"),
    ],
)
def test_bad_converters_are_refused(source: Any, converters: Any, what: str) -> None:
    with pytest.raises(TvmlabError, match=what) as caught:
        tvmlab.load(source, converters=converters)
    assert caught.value.where
    assert caught.value.fix
