"""The tools of notebook 09: what is missing says which package brings it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvmlab.workbook import lab_tools

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A PATH of one empty folder, and nothing remembered."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    lab_tools.missing.cache_clear()
    yield tmp_path
    lab_tools.missing.cache_clear()


def program(folder: Path, name: str, code: int = 0) -> None:
    (folder / name).write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_a_missing_tool_names_its_package(
    own_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(own_path, "nm")
    assert lab_tools.here("nm")
    assert not lab_tools.here("pahole", "nm", "pidstat")
    assert capsys.readouterr().out == (
        "skipped: pahole is not on this machine: `make lab-tools` (Debian's dwarves)\n"
        "skipped: pidstat is not on this machine: `make lab-tools` (Debian's sysstat)\n"
    )


@pytest.mark.parametrize("tool", ["perf", "strace"])
def test_a_tool_that_the_kernel_stops_is_missing(own_path: Path, tool: str) -> None:
    program(own_path, tool, code=1)
    assert lab_tools.missing(tool) == (
        f"{tool} is on this machine, but the kernel does not let it look at processes"
    )


def test_make_lab_tools_installs_every_package_of_the_list(own_path: Path) -> None:
    said = own_path / "said"
    for name in ("apt-get", "sudo"):
        (own_path / name).write_text(f'#!/bin/sh\necho "{name} $@" >>{said}\n')
        (own_path / name).chmod(0o755)
    line = ["sh", str(ROOT / "scripts/lab-tools.sh")]
    path = f"{own_path}:/usr/bin:/bin"
    subprocess.run(line, check=True, env={"PATH": path})
    update, install = said.read_text().splitlines()
    assert "update" in update
    names = re.sub(r".* --no-install-recommends ", "", install).split()
    assert names == sorted(set(lab_tools.PACKAGES.values()))
