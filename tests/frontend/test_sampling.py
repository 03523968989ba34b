"""Sampling of pictures at computed places, compared with PyTorch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from torch.nn import functional
from tvm import relax

import tvmlab
from tests.frontend.test_indices import by_torch
from tests.ir.indices import SCHEDULES, Call, Program, agree, exported
from tests.oracles.models import array
from tvmlab.errors import CompileError, UnsupportedOperatorError

PADDINGS = ("zeros", "border", "reflection")


def close(function: Call, schedule: bool, *inputs: np.ndarray) -> None:
    mod, theirs = by_torch(function, *inputs)
    agree(tvmlab.compile(mod, schedule=schedule), theirs, *inputs, fits=True, rtol=1e-4)


@SCHEDULES
@pytest.mark.parametrize("height", [1, 2, 4])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_pytorch(mode: str, height: int, schedule: bool) -> None:
    """Every height meets every mode; coordinates also lie outside."""
    padding, aligned = PADDINGS[height // 2], schedule == (mode != "nearest")
    grid = np.random.default_rng(height).uniform(-2.5, 2.5, (2, height, 3, 2)).astype("float32")
    close(
        lambda x, grid: functional.grid_sample(x, grid, mode, padding, aligned),
        *(schedule, array(2, 3, 5, 4), grid),
    )


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_far_outside_of_pytorch(mode: str, padding: str) -> None:
    """ONNX Runtime takes other pixels from 1e20 on; PyTorch does not."""
    places = np.array([1e3, 1e5, 1e9, 1e20, -1e3, -1e5, -1e9, -1e20], "float32")
    grid = np.zeros((1, 8, 2, 2), "float32")
    grid[0, :, 0, 0] = grid[0, :, 1, 1] = places
    close(
        lambda x, grid: functional.grid_sample(x, grid, mode, padding, False),
        *(True, array(1, 2, 5, 4), grid),
    )


def test_affine_grids_of_pytorch() -> None:
    close(
        lambda x, by: functional.grid_sample(
            x, functional.affine_grid(by, [1, 3, 6, 2], align_corners=False), align_corners=False
        ),
        *(True, array(1, 3, 5, 4), array(1, 2, 3)),
    )


@pytest.mark.parametrize("shape", [(1, 3, 1, 4), (1, 3, 5, 1)])
def test_one_row_or_column_reflects_in_no_way(shape: tuple[int, ...]) -> None:
    program = Program(
        lambda x, grid: functional.grid_sample(x, grid, "bilinear", "reflection", True)
    )
    with pytest.raises(UnsupportedOperatorError, match="one row or column"):
        exported(program, array(*shape), array(1, 2, 2, 2))


def operator(make: Call, *inputs: np.ndarray) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    names = [
        relax.Var(f"x{k}", relax.TensorType(one.shape, str(one.dtype)))
        for k, one in enumerate(inputs)
    ]
    with builder.function("main", names):
        builder.emit_func_output(builder.emit(make(*names)))
    return builder.get()


def test_kernels_that_cannot_be_checked_are_refused() -> None:
    regions = np.array([(1, 0, 0, 3, 4)], "float32")
    pool = functools.partial(relax.op.vision.roi_pool, pooled_size=(1, 1), spatial_scale=1.0)
    with pytest.raises(CompileError, match="reads at places that tvmlab cannot check"):
        tvmlab.compile(operator(pool, array(2, 3, 5, 4), regions))
