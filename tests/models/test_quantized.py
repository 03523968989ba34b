"""The quantized models: as good as the float ones, the same in every run, and importable."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from onnx import numpy_helper

import tvmlab
from tests.oracles.models import dense, said
from tvmlab import models
from tvmlab.errors import InputError
from tvmlab.models import quantized


@pytest.mark.parametrize(("format", "activations"), [("QDQ", "uint8"), ("QOperator", "int8")])
def test_the_digits_network_in_onnx(format: Any, activations: Any) -> None:
    """Its accuracy, and that of what is imported, are in `tests/qnn/test_peers.py`."""
    source = models.digits_resnet(batch=None)
    before = source.proto.SerializeToString()
    proto = quantized.quantized_onnx(source, format=format, activations=activations)
    assert source.proto.SerializeToString() == before
    kinds = Counter(node.op_type for node in proto.graph.node)
    if format == "QDQ":
        assert kinds["Conv"] == 9
        assert not any(kind.startswith("QLinear") for kind in kinds)
    else:
        assert (kinds["QLinearConv"], kinds["QGemm"]) == (9, 1)
        assert quantized.quantized_onnx(source, format=format, activations=activations) == proto
    assert activations in tvmlab.load(proto, shapes={"data": (10, 1, 8, 8)}).script()


def test_weights_use_all_of_int8_and_one_scale_or_one_a_channel() -> None:
    for per_channel in (True, False):
        proto = quantized.quantized_onnx(models.digits_resnet(), per_channel=per_channel)
        values = {it.name: numpy_helper.to_array(it) for it in proto.graph.initializer}
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
        ({"calibration": np.zeros((4, 1, 8, 9), "float32")}, r"float32\[4, 1, 8, 9\] are not"),
        ({"calibration": np.zeros((0, 1, 8, 8), "float32")}, r"not finite inputs float32\[1, 1"),
        ({"calibration": np.full((2, 1, 8, 8), np.nan, "float32")}, "not finite inputs"),
        ({"model": dense(3)}, "This is a ModelProto, not a network of tvmlab.models"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        quantized.quantized_onnx(**({"model": models.digits_resnet()} | arguments))
    said(caught.value)


@pytest.mark.parametrize("network", [torch.nn.Conv2d(3, 4, 3).eval(), "resnet"], ids=type)
def test_networks_that_are_not_the_workbooks(network: Any) -> None:
    with pytest.raises(InputError, match="is not a network of") as caught:
        quantized.quantized_torch(network)
    said(caught.value)
