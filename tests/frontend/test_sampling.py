"""Sampling of pictures at computed places, compared with PyTorch and ONNX Runtime."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from onnx import TensorProto
from torch.nn import functional
from tvm import relax

import tvmlab
from tests.frontend.test_indices import by_onnx, by_torch
from tests.ir.indices import SCHEDULES, Call, Program, agree, exported
from tests.oracles.models import array, model, node, value
from tvmlab.errors import OutOfRangeError, UnsupportedOperatorError

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


@functools.cache
def regions(schedule: bool) -> tuple[Call, Call]:
    proto = model(
        [node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2)],
        [
            value("x", TensorProto.FLOAT, (2, 3, 5, 4)),
            value("r", TensorProto.FLOAT, (2, 4)),
            value("b", TensorProto.INT64, (2,)),
        ],
        [value("y", TensorProto.FLOAT, None)],
        opset=16,
    )
    mod, theirs = by_onnx(proto)
    return tvmlab.compile(mod, schedule=schedule), theirs


@SCHEDULES
@pytest.mark.parametrize("corners", [(1, 1, 3, 4), (1, 1, 1, 4), (1, 4, 3, 4), (3, 3, 1, 1)])
def test_regions_without_extent_are_zero(corners: tuple[int, ...], schedule: bool) -> None:
    inputs = array(2, 3, 5, 4), np.array([corners, (0, 0, 3, 3)], "float32"), np.array([1, 0])
    agree(*regions(schedule), *inputs, fits=True, rtol=1e-5)


@SCHEDULES
@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf, 1e30, -3e9])
def test_corners_without_a_place_are_refused(corner: float, schedule: bool) -> None:
    ours, _ = regions(schedule)
    for place in range(4):
        rows = np.array([(0, 0, 3, 3), (0, 0, 3, 3)], "float32")
        rows[1, place] = corner
        with pytest.raises(OutOfRangeError, match="corner that is not finite"):
            ours(array(2, 3, 5, 4), rows, np.array([1, 0]))


@SCHEDULES
def test_corners_of_pooled_regions(schedule: bool) -> None:
    rows = np.array([(1, 0, 0, 3, 4)], "float32")
    given = array(2, 3, 5, 4), rows
    pool = functools.partial(relax.op.vision.roi_pool, pooled_size=(1, 1), spatial_scale=1.0)
    ours = tvmlab.compile(operator(pool, *given), schedule=schedule)
    assert np.array_equal(ours(*given)[0, :, 0, 0], given[0][1].max((1, 2)))
    with pytest.raises(OutOfRangeError, match="corner that is not finite"):
        ours(given[0], np.array([(1, 0, np.nan, 3, 4)], "float32"))


@SCHEDULES
def test_rows_of_probabilities(schedule: bool) -> None:
    shares = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]], "float32")
    given = shares, np.array([[0.4], [0.9], [0.1]], "float32"), np.array([[0], [1], [1]])
    make = relax.op.multinomial_from_uniform
    ours = tvmlab.compile(operator(make, *given), schedule=schedule)
    assert ours(*given).tolist() == [[1], [2], [0]]
    for outside in (2, -1, 10**9):
        with pytest.raises(OutOfRangeError, match="multinomial_from_uniform"):
            ours(*given[:2], np.array([[0], [outside], [1]]))


@SCHEDULES
def test_numbers_of_valid_boxes(schedule: bool) -> None:
    """Of two boxes in one place the better stays; rows are class, score, and corners."""
    rows = np.array([[(0, 0.5, 0, 0, 2, 2), (0, 0.9, 0, 0, 2, 2), (0, 0.7, 5, 5, 6, 6)]])
    places = np.arange(3, dtype="int32")[None]
    given = rows.astype("float32"), np.array([3], "int32"), places
    make = functools.partial(relax.op.vision.non_max_suppression, return_indices=False)
    ours = tvmlab.compile(operator(make, *given), schedule=schedule)
    for count, scores in ((3, [0.9, 0.7]), (1, [0.5]), (0, [])):
        kept = ours(given[0], np.array([count], "int32"), places)[0, :, 1]
        assert kept[kept > 0].tolist() == np.array(scores, "float32").tolist()
    for outside in (4, -1, 10**8):
        with pytest.raises(OutOfRangeError, match="numbers of boxes"):
            ours(given[0], np.array([outside], "int32"), places)
