"""What a command is at, for whoever waits at a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

__all__ = ["stage"]


@contextlib.contextmanager
def stage(doing: str) -> Iterator[None]:
    """Say what is being done while it is, on a terminal's last line.

    Parameters
    ----------
    doing : str
        Such as ``"compile resnet50.onnx"``.
    """
    if not sys.stderr.isatty():
        yield
        return
    print(f"\r\x1b[K{doing} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
