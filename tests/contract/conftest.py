"""What the contract's tests share: values kept in JSON files beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture
def kept() -> Callable[[str, str, Any], Any]:
    """Return a function that reads one entry of ``FILE.json``.

    With ``TVMLAB_FREEZE=1`` the function first replaces the entry with the value that was found.
    """

    def read(file: str, key: str, found: Any) -> Any:
        path = HERE / f"{file}.json"
        entries = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if os.environ.get("TVMLAB_FREEZE"):
            entries[key] = found
            path.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return entries[key]

    return read
