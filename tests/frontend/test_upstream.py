"""docs/upstream.md: every fault that it shows is still there."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upstream.md"
SETUP, *FAULTS = re.findall(
    r"^#{1,3} ([^\n]+)\n(?:(?!#)[^\n]*\n)*?```python\n(.*?)```", PAGE.read_text(), re.M | re.S
)


@functools.cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(SETUP[1], names)
    return names


@pytest.mark.parametrize("code", [pytest.param(code, id=title) for title, code in FAULTS])
@pytest.mark.filterwarnings("ignore")
def test_fault(code: str) -> None:
    assert re.search(r"^ *assert ", code, re.M)
    exec(compile(code, str(PAGE), "exec"), dict(_names()))
