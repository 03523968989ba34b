"""Exported PyTorch programs: the same numbers as PyTorch; what cannot be right is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tvmlab
from tests.ir.indices import Program
from tests.oracles.models import array, as_tuple, said
from tvmlab.errors import ModelError, ShapeError, UnsupportedOperatorError

nn = torch.nn


def export(module: Any, *inputs: Any, **more: Any) -> Any:
    return torch.export.export(module.eval(), inputs, **more)


def agree_with_pytorch(module: Any, *inputs: torch.Tensor) -> None:
    executable = tvmlab.compile(tvmlab.load(export(module, *inputs)))
    with torch.no_grad():
        theirs = module(*inputs)
    ours = as_tuple(executable(*inputs))
    for mine, other in zip(ours, theirs if isinstance(theirs, tuple) else (theirs,), strict=True):
        assert str(mine.dtype) == str(other.dtype).removeprefix("torch.")
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-4, atol=1e-5)


def tensor(*shape: int) -> torch.Tensor:
    return torch.from_numpy(array(*shape))


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 3, groups=1, bias=False), nn.BatchNorm2d(4, affine=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.Softmax(1)),
        nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.BatchNorm2d(4)),
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1)),
        nn.Sequential(nn.AvgPool2d(2), nn.Dropout(0.5), nn.GELU()),
    ],
    ids=["conv-norm", "no-affine", "dense", "transposed", "norm-first", "dropout"],
)
def test_modules(module: Any) -> None:
    torch.manual_seed(1)
    for norm in (m for m in module if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
    agree_with_pytorch(module.eval(), tensor(1, 3, 8, 8))


@settings(max_examples=4)
@given(batch=st.integers(1, 5))
def test_a_dynamic_batch(batch: int) -> None:
    module = nn.Linear(4, 3)
    program = export(module, tensor(2, 4), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    executable = tvmlab.compile(tvmlab.load(program))
    x = tensor(batch, 4)
    np.testing.assert_allclose(executable(x), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_bounds_of_sizes_are_kept_where_they_say_something() -> None:
    for least, lower in ((2, {"tir_var_lower_bound": [2]}), (1, {})):
        dynamic = ({0: torch.export.Dim("n", min=least, max=8)},)
        mod = tvmlab.load(export(nn.ReLU(), tensor(3, 4), dynamic_shapes=dynamic))
        found = {name: values for name, values in mod["main"].attrs.items() if "bound" in name}
        bounds = {name: [int(value) for value in found[name].values()] for name in found}
        assert bounds == {"tir_var_upper_bound": [8], **lower}


def test_several_inputs_and_outputs() -> None:
    agree_with_pytorch(Program(lambda a, b: (a + b, a * b, a)), tensor(3), tensor(3) + 1)


def test_outputs_have_the_names_that_pytorch_gave_them() -> None:
    """Those of the graph's nodes, before operators are decomposed; where they serve."""

    def names(function: Any) -> list[str]:
        made = tvmlab.compile(tvmlab.load(export(Program(function), tensor(2, 3)))).signature
        return [one.name for one in made.outputs]

    assert names(lambda a: torch.nn.functional.silu(a)) == ["silu"]
    assert names(lambda a: (a + 1, a * 2)) == ["add", "mul"]
    both = names(lambda a: (a + 1,) * 2)  # two outputs cannot share a name
    assert both == ["output_0", "output_1"]


def test_an_unsupported_operator_is_named() -> None:
    program = export(Program(lambda x: torch.linalg.svd(x)[1]), tensor(3, 3))
    with pytest.raises(UnsupportedOperatorError, match="linalg_svd") as caught:
        tvmlab.load(program)
    said(caught.value)


def test_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="has its shapes fixed already") as caught:
        tvmlab.load(export(nn.ReLU(), tensor(3)), shapes={"x": (3,)})
    assert "dynamic_shapes" in said(caught.value)


class OwnModule(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("module", [nn.ReLU(), OwnModule(), torch.zeros(3)], ids=type)
def test_what_is_not_exported_yet(module: Any) -> None:
    with pytest.raises(ModelError, match="has to be exported") as caught:
        tvmlab.load(module)
    assert "torch.export.export" in said(caught.value)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (Counter(), "'count'"),
        (Program(lambda x: x.add_(1) * 2), "'inputs_0'"),
        (nn.Sequential(nn.BatchNorm1d(3)), "'0.running_mean'"),
    ],
    ids=["buffer", "input", "training"],
)
def test_a_program_that_changes_its_state_is_refused(module: Any, named: str) -> None:
    program = torch.export.export(module, (tensor(3, 3),))
    with pytest.raises(ModelError, match="changes its own state when it runs") as caught:
        tvmlab.load(program)
    assert named in caught.value.what
    assert "module.eval()" in said(caught.value)
