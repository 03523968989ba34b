"""Operators that upstream converts wrongly give PyTorch's results, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tvmlab
from tvmlab.errors import UnsupportedOperatorError

F = torch.nn.functional


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function  # type: ignore[method-assign]


def imported(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    program = torch.export.export(Module(function), inputs)
    return tvmlab.compile(tvmlab.load(program))(*[x.numpy() for x in inputs])


def agrees(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    expected, found = function(*inputs).numpy(), imported(function, *inputs)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


WHOLE = torch.arange(-6, 6).reshape(3, 4)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a, b: a / b, (WHOLE, WHOLE + 10)),
        (lambda a: a / 4, (WHOLE,)),
        (lambda a, b: torch.add(a, b, alpha=2), (drawn(3, 4), WHOLE)),
        (lambda a, b: torch.sub(a, b, alpha=3), (WHOLE, WHOLE + 1)),
        (lambda a: torch.rsub(a, 1, alpha=2), (drawn(3, 4),)),
        (F.selu, (100 * drawn(3, 4),)),
        (lambda a: F.celu(a, 0.5), (drawn(3, 4),)),
        (lambda a: F.max_pool2d(a, 2, return_indices=True)[0], (drawn(1, 2, 6, 7),)),
        (lambda a: a.amax((0, 2)), (drawn(2, 3, 4),)),
        (lambda a: a.amin(), (drawn(2, 3),)),
        (lambda a: a.prod(1), (drawn(2, 3),)),
        (lambda a: a.logsumexp(1), (drawn(2, 3),)),
    ],
)
def test_operators(function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    agrees(function, *inputs)


@settings(max_examples=15, deadline=None)
@given(*[st.integers(1, 9)] * 4)
def test_nearest_takes_pytorchs_pixels(rows: int, columns: int, tall: int, wide: int) -> None:
    agrees(lambda a: F.interpolate(a, size=(tall, wide)), drawn(1, 2, rows, columns))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda a: F.max_pool2d(a, 2, return_indices=True)[1], "the indices of max_pool2d"),
        (lambda a: F.interpolate(a, size=(3, 3), mode="bilinear", antialias=True), "antialias"),
        (lambda a: F.avg_pool2d(a, 2, divisor_override=3), "divisor_override"),
    ],
)
def test_what_is_refused(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=what):
        imported(function, drawn(1, 2, 6, 7))
