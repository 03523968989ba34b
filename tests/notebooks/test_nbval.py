"""`make test` notices an output that has changed, and leaves out what the machine lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from notebooks import ROOT
from tests.notebooks.checked import code, run_nbval, sample, stream, written

SHARED = f"{ROOT / 'tests' / 'offline'}{os.pathsep}{ROOT}"  # with the repository's conftest.py


def test_a_changed_output_fails(tmp_path: Path) -> None:
    notebook = sample()
    (cell,) = [cell for cell in notebook.cells if cell.id == "pair"]
    cell.outputs[0].text = cell.outputs[0].text.replace("10", "11")
    cells, text = run_nbval(written(tmp_path, notebook))
    assert [name for name, said in cells.items() if said] == ["Cell 1"], text
    assert "Cell outputs differ" in cells["Cell 1"]


def test_a_notebook_and_a_cell_are_skipped_where_a_program_is_missing(tmp_path: Path) -> None:
    notebook = sample()
    notebook.cells.append(code("asks", "print(1)", stream("1\n"), tags=["needs-pahole"]))
    path = written(tmp_path, notebook)
    cells, text = run_nbval(path, "-p", "conftest", PATH=str(tmp_path), PYTHONPATH=SHARED)
    *others, asks = cells.values()
    assert set(others) == {""}, text
    assert "pahole is not on this machine: `make lab-tools`" in asks
    notebook.metadata.tvmlab.needs = ["g++"]
    path = written(tmp_path, notebook)
    cells, text = run_nbval(path, "-p", "conftest", PATH=str(tmp_path), PYTHONPATH=SHARED)
    assert len(cells) == 6, text
    assert all("needs g++: not on this machine" in said for said in cells.values()), cells


@pytest.mark.parametrize(
    ("reason", "code"), [("zsh: not on this machine", 0), ("zsh: I did not like it", 1)]
)
def test_a_skip_for_an_unknown_reason_fails_the_run(tmp_path: Path, reason: str, code: int) -> None:
    (tmp_path / "test_a.py").write_text(
        f"import pytest\n\ndef test_a():\n    pytest.skip({reason!r})\n\ndef test_b(): pass\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", "/dev/null", f"--rootdir={tmp_path}", tmp_path],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stdout
    assert (f"so the run fails: {reason}" in done.stdout) == bool(code)
