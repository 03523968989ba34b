"""What the referee's tests share: how much they compare."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run compare less than everything."""
    parser.addoption("--inputs", type=int, help="at most this number of inputs or networks")


@pytest.fixture
def size(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Return a function from a full number of inputs to the number of this run."""
    most = request.config.getoption("--inputs")
    return lambda full: full if most is None else min(full, most)
