"""The quantized models: as good as the float ones, the same in every run, and importable."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import numpy_helper

import tvmlab
from tests.oracles.models import dense, quickly, said
from tests.short import long
from tvmlab import models
from tvmlab.errors import InputError
from tvmlab.models import quantized


def operators(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in proto.graph.node)


def stored(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


@pytest.mark.parametrize(("format", "activations"), [("QDQ", "uint8"), ("QOperator", "int8")])
def test_the_digits_network_in_onnx(format: Any, activations: Any) -> None:
    """Its accuracy, and that of what is imported, are in `tests/qnn/test_peers.py`."""
    source = models.digits_resnet(batch=None)
    before = source.proto.SerializeToString()
    proto = quantized.quantized_onnx(source, format=format, activations=activations)
    assert source.proto.SerializeToString() == before
    kinds = operators(proto)
    if format == "QDQ":
        assert kinds["Conv"] == 9
        assert not any(kind.startswith("QLinear") for kind in kinds)
    else:
        assert (kinds["QLinearConv"], kinds["QGemm"]) == (9, 1)
        assert quantized.quantized_onnx(source, format=format, activations=activations) == proto
    mod = tvmlab.load(proto, shapes={"data": (10, 1, 8, 8)})
    assert activations in mod.script()


def test_weights_use_all_of_int8_and_one_scale_or_one_a_channel() -> None:
    for per_channel in (True, False):
        proto = quantized.quantized_onnx(models.digits_resnet(), per_channel=per_channel)
        values = stored(proto)
        weights = {n: w for n, w in values.items() if w.dtype == np.int8 and w.ndim == 4}
        assert len(weights) == 9
        for name, weight in weights.items():
            assert np.abs(weight.astype(int)).max() == 127
            scale = values[name.replace("_quantized", "_scale")]
            assert scale.size == (len(weight) if per_channel else 1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"format": "QLinear"}, "There is no 'QLinear' here"),
        ({"calibration": np.zeros((4, 1, 8, 9), "float32")}, r"float32\[4, 1, 8, 9\], the input"),
        ({"calibration": np.zeros((0, 1, 8, 8), "float32")}, "empty or not finite"),
        ({"calibration": np.full((2, 1, 8, 8), np.nan, "float32")}, "empty or not finite"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        quantized.quantized_onnx(models.digits_resnet(), **arguments)
    said(caught.value)


def test_what_is_no_float_model_of_onnx() -> None:
    with pytest.raises(InputError, match="float32\\[2, 4\\], the input float32\\[3, 4\\]"):
        quantized.quantized_onnx(dense(3), calibration=np.ones((2, 4), "float32"))
    with pytest.raises(InputError, match="This is a str, not an ONNX model") as caught:
        quantized.quantized_onnx("model.onnx")  # type: ignore[arg-type]
    said(caught.value)
    for format in ("QDQ", "QOperator"):
        x = np.ones((3, 4), "float32")
        made = quantized.quantized_onnx(dense(3), format=format, calibration=x)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="quantized already: it has ") as caught:
            quantized.quantized_onnx(made, calibration=x)
        said(caught.value)


# PyTorch


@functools.cache
def small() -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)
    ).eval()


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=long)])
def test_any_module_with_its_calibration(count: int) -> None:
    x = np.random.default_rng(0).standard_normal((count, 3, 8, 8), "float32")
    made = quantized.quantized_torch(small(), calibration=x)
    mod = tvmlab.load(made)  # as it is, or its program
    tvm.ir.assert_structural_equal(mod, tvmlab.load(made.program))
    with torch.no_grad():
        theirs, precise = (net(torch.from_numpy(x[:1])).numpy() for net in (made.module, small()))
    assert np.abs(theirs - precise).max() <= 0.05 * np.abs(precise).max()
    assert np.abs(quickly(mod, x[:1])[0] - theirs).max() <= 0.02 * np.abs(theirs).max()


class Shared(torch.nn.Module):  # type: ignore[misc]
    """A convolution that is read both by a batch norm and by the sum behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y + self.norm(y)


X = np.ones((2, 3, 8, 8), "float32")


@pytest.mark.parametrize(
    ("network", "calibration", "match"),
    [
        (small, None, "no pictures to calibrate this network"),
        (small, np.ones((2, 1, 8, 8), "float32"), "does not take calibration data"),
        (small, np.ones((2, 3, 8, 8)), "not float32"),
        (lambda: torch.nn.Conv2d(3, 4, 3), X, "training mode"),
        (lambda: "resnet", X, "This is a str, not a torch.nn.Module"),
        (lambda: Shared().eval(), X, "something else reads too"),
        (models.torch_digits_resnet, X, "does not take calibration data"),
        (lambda: quantized_module(), X, "quantized already"),
    ],
)
def test_networks_that_cannot_be_quantized(network: Any, calibration: Any, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        quantized.quantized_torch(network(), calibration=calibration)
    said(caught.value)


def quantized_module() -> torch.nn.Module:
    module = quantized.quantized_torch(small(), calibration=X).module
    module.training = False  # an exported module takes no eval()
    return module
