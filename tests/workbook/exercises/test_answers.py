"""Answers that are right in another way than the worked solution are taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from PIL import Image
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmlab import exercises, models


def judged(capsys: pytest.CaptureFixture[str], check: str, *answer: Any, **given: Any) -> str:
    """Return what a check says."""
    getattr(exercises, check)(*answer, **given)
    return capsys.readouterr().out


def chosen(low: float, high: float) -> tuple[float, int]:
    low, high = min(low, 0), max(high, 0)
    scale = (high - low) / 255
    return scale, round(-128 - low / scale)


def as_list(low: float, high: float) -> list[float]:
    return [*chosen(low, high)]


def as_array(low: float, high: float) -> np.ndarray:
    return np.array(chosen(low, high))


def as_int8(low: float, high: float) -> tuple[float, np.int8]:
    scale, zero = chosen(low, high)
    return np.float32(scale), np.int8(zero)


def scaled(picture: np.ndarray, method: int | None, whole: Callable[[float], int]) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = 256 / min(height, width)
    high, wide = whole(height * scale), whole(width * scale)
    if method is not None:
        return np.asarray(Image.fromarray(picture).resize((wide, high), method))
    rows, columns = np.arange(high) / scale, np.arange(wide) / scale
    return picture[rows.astype(int)][:, columns.astype(int)]


@pytest.mark.parametrize("whole", [round, int, math.ceil])
@pytest.mark.parametrize("method", [None, *Image.Resampling])
def test_any_way_to_scale_a_picture(
    method: int | None, whole: Callable[[float], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Pillow's ways, and a nearest pixel that is looked up without Pillow."""

    def crop(picture: np.ndarray) -> np.ndarray:
        large = scaled(picture, method, whole)
        top, left = (large.shape[0] - 224) // 2, (large.shape[1] - 224) // 2
        return large[top : top + 224, left : left + 224]

    told = {"shorter": 256, "side": 224}
    said = judged(capsys, "check_crop", crop, models.sample_image(), **told)
    assert said.startswith("done: ")


def numpy_servers(processes: int, build: float, run: float) -> np.int64:
    return np.int64(math.ceil(processes * run / build))


def numpy_median(candidate: list[int], rule: list[int]) -> np.bool_:
    return np.median(np.array(candidate) / np.array(rule)) < 0.98


def in_float32(share: float, times: float) -> np.float32:
    return 1 / (1 - np.float32(share) + np.float32(share) / np.float32(times))


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("check_choose", as_list),
        ("check_choose", as_array),
        ("check_choose", as_int8),
        ("check_servers", numpy_servers),
        ("check_wins", numpy_median),
        ("check_gain", in_float32),
    ],
)
def test_results_of_other_types(
    check: str, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(capsys, check, answer).startswith("done: ")


TARGET, SHAPES = "npu, llvm -mattr=+avx2,+fma", "data:[n,1,8,8] mask:[n,8]"


def mutated(function: relax.Function) -> relax.Function:
    @mutator
    class DropOne(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = super().visit_call_(call)
            if call.op == tvm.ir.Op.get("relax.multiply"):
                for one, other in (call.args, call.args[::-1]):
                    if hasattr(one, "value") and (one.value.numpy() == 1).all():
                        return other
            return call

    return DropOne().visit_expr(function)


def test_a_mutator_for_a_rewrite(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(capsys, "check_drop_one", mutated).startswith("done: ")
