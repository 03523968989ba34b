"""The C++ is laid out by clang-format, and clang-tidy finds nothing in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from notebooks import missing_tool
from tests.short import ALL
from tvmlab.support import toolchain

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tvmlab/native", "tests/native")
SOURCES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.cc"))
HEADERS = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.h"))


def need(tool: str) -> None:
    if reason := missing_tool(tool):
        pytest.skip(reason)


def test_the_layout_is_clang_formats() -> None:
    assert SOURCES
    need("clang-format")
    done = subprocess.run(
        ["clang-format", "--dry-run", "--Werror", *SOURCES, *HEADERS],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_clang_tidy_finds_nothing(source: Path) -> None:
    if not ALL:
        pytest.skip("clang-tidy reads all of tvm-ffi for each file, minutes: `make test-all`")
    need("clang-tidy")
    flags, _ = toolchain.ffi_flags()
    beside = [f"-I{ROOT}/tvmlab/native/{name}" for name in ("npu", "quantizer")]
    done = subprocess.run(
        ["clang-tidy", "--quiet", source, "--", *flags, *beside],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
