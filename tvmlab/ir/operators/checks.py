"""Errors of the shared checks, said as errors of Relay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...errors import RelayError, ShapeError


@contextlib.contextmanager
def relay_errors() -> Iterator[None]:
    """Turn a `ShapeError` from inside into a `RelayError` that says the same."""
    try:
        yield
    except ShapeError as error:
        raise RelayError(error.what, where=error.where, fix=error.fix) from error
