"""Writing a text file, whole or not at all, with our error where that cannot be done."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import TvmlabError
from ...support.files import whole

__all__ = ["written"]


def written(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text; give the file."""
    path = Path(path)
    try:
        with whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: no path has a null character
        raise TvmlabError(
            f"the file cannot be written: {getattr(error, 'strerror', error)}",
            where=str(path),
            fix="choose an existing folder that you may write to and that has space",
        ) from error
    return path
