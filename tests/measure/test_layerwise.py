"""The first layer that differs, against ONNX Runtime, PyTorch and a module before a pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax
from tvm.script import from_source

import tvmlab
from tvmlab import models
from tvmlab.errors import InputError, ModelError
from tvmlab.ir.values import value_name
from tvmlab.measure.layerwise import _difference

X = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype("float32")


def leaky(bb: relax.BlockBuilder, inputs: list[Any], attributes: dict[str, Any]) -> relax.Expr:
    return relax.op.nn.leakyrelu(inputs[0], 0.1)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = torch.split(
            nn.functional.silu(self.norm(self.first(x))) * x[:, :, 1:7, 1:7], 2, 1
        )
        return left.relu() + right, left


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(0)
    return torch.export.export(Network().eval(), (torch.from_numpy(X),))


@pytest.mark.parametrize("form", ["model", "proto", "path", "bytes"])
def test_onnx(form: str, tmp_path: Path) -> None:
    model = models.digits_resnet()
    path, data = tmp_path / "m.onnx", model.proto.SerializeToString()
    path.write_bytes(data)
    reference = {"model": model, "proto": model.proto, "path": path, "bytes": data}[form]
    right = tvmlab.compare(tvmlab.load(reference), reference, X)
    assert right.first is None
    assert not right.unmatched
    assert len(right.rows) > 25
    assert right.rows[-1].operator == "(output)"
    wrong = tvmlab.compare(tvmlab.load(reference, converters={"Relu": leaky}), reference, [X])
    assert (wrong.first.name, wrong.first.operator) == ("stage1.unit1.relu1", "nn.leakyrelu")
    assert "stage1.unit1.relu1" in next(line for line in str(wrong).split("\n") if "<-" in line)


@pytest.mark.parametrize("kept", [False, True])
def test_pytorch(network: Any, kept: bool) -> None:
    def silu(bb: relax.BlockBuilder, inputs: list[Any], _: Any) -> relax.Expr:
        return inputs[0] * bb.emit(relax.op.sigmoid(inputs[0]))

    # Without the decomposition of silu, other nodes of the program have the names mul and mul_1.
    mod = tvmlab.load(network, converters={"aten::silu": silu} if kept else None)
    right = tvmlab.compare(mod, network, {"x": X})
    assert right.first is None
    assert ("silu" in [row.name for row in right.rows]) == kept
    wrong = tvmlab.load(network, converters={"aten::relu": leaky})
    assert tvmlab.compare(wrong, network, X).first.name == "relu"


def test_a_pass(network: Any) -> None:
    mod = tvmlab.load(network)
    assert value_name(mod["main"].body.blocks[0].bindings[0]) is None  # the bias is not added yet
    assert tvmlab.compare(relax.transform.FoldConstant()(mod), mod, X).first is None
    # A printed module has no names of values, so the names of variables count.
    text = mod.script(show_meta=True)
    before, after = from_source(text), from_source(text.replace("R.nn.relu", "R.nn.silu"))
    assert tvmlab.compare(after, before, X).first.operator == "nn.silu"


def test_what_cannot_be_compared(network: Any, tmp_path: Path) -> None:
    mod = tvmlab.load(network)
    for reference, kind in (
        (3, ModelError),
        (tmp_path / "none.onnx", ModelError),
        (b"x", ModelError),
    ):
        with pytest.raises(kind):
            tvmlab.compare(mod, reference, X)
    with pytest.raises(InputError, match="of a module, not of Executable"):
        tvmlab.compare(tvmlab.compile(mod), network, X)
    with pytest.raises(InputError, match="2 outputs"):
        tvmlab.compare(mod, models.digits_resnet(), X)
    with pytest.raises(InputError):
        tvmlab.compare(mod, network, X[0])


@pytest.mark.parametrize(
    ("have", "want", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([0.0, 0.5], [0.0, 0.0], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0),
        ([np.nan, 1], [1, 1], np.inf),
        ([np.inf, 1], [-np.inf, 1], np.inf),
        ([2**62 + 1], [2**62], 2.0**-62),
        ([1, 2], [[1, 2]], np.inf),
        ([], [], 0),
    ],
)
def test_difference(have: Any, want: Any, difference: float) -> None:
    assert _difference(np.array(have), np.array(want)) == pytest.approx(difference, rel=1e-9)
