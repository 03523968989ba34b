"""`make test` draws the same cases in every run, `make test-all` new ones, which a seed repeats."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRAWS = """
from tests.short import fresh
from hypothesis import given, settings, strategies as st

@settings(max_examples=5, database=None)
@given(st.integers())
def test_draws(number):
    print("drawn", number)

def test_draws_its_own():
    print("drawn", fresh(3))
"""


def drawn(folder: Path, *options: str, all_: bool = False) -> tuple[list[str], str | None]:
    """Return what a run draws, and the seed that it prints."""
    (folder / "test_draws.py").write_text(DRAWS)
    unset = ("TVMLAB_TEST_ALL", "TVMLAB_TEST_SEED", "PYTEST_XDIST_WORKER")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"TVMLAB_TEST_ALL": "1"} if all_ else {})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-s",
        "test_draws.py",
        *options,
    ]
    run = {"check": True, "capture_output": True, "text": True, "cwd": folder, "env": environment}
    output = subprocess.run(command, **run).stdout
    seed = re.search(r"^random cases: .* --hypothesis-seed=(\d+)$", output, re.MULTILINE)
    return re.findall(r"drawn (.+)", output), seed and seed[1]


def test_cases_are_the_same_or_new_and_can_be_repeated(tmp_path: Path) -> None:
    short, _ = drawn(tmp_path)
    assert drawn(tmp_path) == (short, None)
    long, seed = drawn(tmp_path, all_=True)
    assert seed is not None
    assert long != short
    assert long[-1] == str(3 + int(seed))
    assert drawn(tmp_path, f"--hypothesis-seed={seed}", all_=True) == (long, seed)
