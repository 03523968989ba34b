"""What a C++ compiler, or a shell, has against a learner's text."""

from __future__ import annotations

from ..errors import ToolchainError

__all__ = ["complaint"]


def complaint(error: ToolchainError) -> str:
    """Give the first line that says error, without the place; else the last that it wrote."""
    failed, *lines = str(error).splitlines()
    wrote = [line.strip() for line in lines if line.startswith("    ")]
    said = (line.partition("error: ")[2] for line in wrote if "error: " in line)
    return next(said, wrote[-1] if wrote else failed)
