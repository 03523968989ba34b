"""What a C++ compiler, or a shell, has against a learner's text."""

from __future__ import annotations

from ..errors import ToolchainError

__all__ = ["complaint"]


def complaint(error: ToolchainError) -> str:
    """Give the first line in which it says error, without the place."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])
