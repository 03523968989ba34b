"""Programs that index, and how they are compared with another framework's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.oracles.models import array, said
from tvmlab.errors import OutOfRangeError

SHAPE = (3, 5, 4)
X = array(*SHAPE)
#: Around the ends of the axes, and where 32 or 64 bits end.
EXTREMES = (10**9, 2**31, 2**32 + 1, 2**63 - 1, -(2**63), -(2**32), -(10**9))
PLACES = st.integers(-11, 10) | st.sampled_from(EXTREMES)
INSIDE = st.integers(-3, 2)
# Checks are added before anything is scheduled; upstream's own loops run in `make test-all`.
SCHEDULES = pytest.mark.parametrize("schedule", [True, pytest.param(False, marks=pytest.mark.full)])
Call = Callable[..., Any]


def agree(
    ours: Call, theirs: Call, *inputs: np.ndarray, fits: bool | None = None, rtol: float = 0
) -> None:
    """Both give the same bits (or close numbers), or ours refuses.

    Ours refuses what theirs refuses, or what does not fit where `fits` tells.
    """
    try:
        wanted = None if fits is False else theirs(*inputs)
    except Exception:
        assert fits is None
        wanted = None
    if wanted is None:
        with pytest.raises(OutOfRangeError) as refusal:
            ours(*inputs)
        said(refusal.value)
        assert isinstance(refusal.value, IndexError)
        return
    found = ours(*inputs)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if rtol:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)
    else:
        assert found.tobytes() == wanted.tobytes()


def drawn(data: st.DataObject, shape: tuple[int, ...]) -> np.ndarray:
    """Draw indices: mostly such as every axis has, so that results are compared, too."""
    places = data.draw(st.sampled_from([INSIDE, PLACES]))
    count = int(np.prod(shape))
    numbers = data.draw(st.lists(places, min_size=count, max_size=count))
    return np.array(numbers, "int64").reshape(shape)


class Program(torch.nn.Module):
    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def exported(module: torch.nn.Module, *inputs: np.ndarray, **options: Any) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = tuple(map(torch.from_numpy, inputs))
        return tvmlab.load(torch.export.export(module.eval(), tensors, **options))


def taking(mode: str = "fast", extent: Any = 5, dtype: str = "int64") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((extent, 4), "float32"))
    i = relax.Var("i", relax.TensorType((2,), dtype))
    with builder.function("main", [x, i]):
        builder.emit_func_output(builder.emit(relax.op.take(x, i, 0, mode)))
    return builder.get()
