"""Sampling of pictures at computed places, compared with PyTorch and ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from helpers_models import array
from torch.nn import functional

import tvmlab
from tvmlab.errors import UnsupportedOperatorError

SCHEDULES = pytest.mark.parametrize("schedule", [True, False])
PADDINGS = ("zeros", "border", "reflection")
Call = Callable[..., Any]


class Program(torch.nn.Module):
    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def exported(program: Program, *inputs: np.ndarray) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tvmlab.load(torch.export.export(program, tuple(map(torch.from_numpy, inputs))))


def close(program: Program, schedule: bool, *inputs: np.ndarray) -> None:
    wanted = program(*map(torch.from_numpy, inputs)).numpy()
    found = tvmlab.compile(exported(program, *inputs), schedule=schedule)(*inputs)
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@SCHEDULES
@pytest.mark.parametrize("height", [1, 2, 4])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_pytorch(mode: str, height: int, schedule: bool) -> None:
    """Every height meets every mode; coordinates also lie outside."""
    padding, aligned = PADDINGS[height // 2], schedule == (mode != "nearest")
    grid = np.random.default_rng(height).uniform(-2.5, 2.5, (2, height, 3, 2)).astype("float32")
    program = Program(lambda x, grid: functional.grid_sample(x, grid, mode, padding, aligned))
    close(program, schedule, array(2, 3, 5, 4), grid)


def test_affine_grids_of_pytorch() -> None:
    program = Program(
        lambda x, by: functional.grid_sample(
            x, functional.affine_grid(by, [1, 3, 6, 2], align_corners=False), align_corners=False
        )
    )
    close(program, True, array(1, 3, 5, 4), array(1, 2, 3))


@pytest.mark.parametrize("shape", [(1, 3, 1, 4), (1, 3, 5, 1)])
def test_one_row_or_column_reflects_in_no_way(shape: tuple[int, ...]) -> None:
    program = Program(
        lambda x, grid: functional.grid_sample(x, grid, "bilinear", "reflection", True)
    )
    with pytest.raises(UnsupportedOperatorError, match="one row or column"):
        exported(program, array(*shape), array(1, 2, 2, 2))
