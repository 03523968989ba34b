"""The short form of `make test`: what `make test-all` does in full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

ALL = bool(os.environ.get("TVMLAB_TEST_ALL"))

#: Data beside the repository, which is not part of it; tests/README.md says what lies there.
SHARED = Path(__file__).resolve().parents[2] / "shared"

#: The marker of what the short form leaves out: most of it is one of a kind of which another runs.
long = pytest.mark.full


def examples(count: int) -> int:
    """Return `count` in `make test-all`, and a quarter of it, 2 at least, in `make test`."""
    return count if ALL else max(2, count // 4)


def fresh(seed: int) -> int:
    """Return `seed` in `make test`, and a seed of this run's own in `make test-all`."""
    return seed + int(os.environ["TVMLAB_TEST_SEED"]) if ALL else seed


def absent(what: str) -> NoReturn:
    """Skip what cannot be tested on this machine; in `make test-all`, which tests all, fail."""
    if ALL:
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def beside(name: str) -> Path:
    """Return the path of data beside the repository, see `absent` where they are missing."""
    path = SHARED / name
    if not path.exists():
        absent(f"../shared/{name} is not here: tests/README.md says what it holds")
    return path
