"""The cells tagged ``tvm-only`` need no `tvmlab`.

Cells tagged ``given`` run before them: they load models and data from files, without `tvmlab`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from notebooks import CELL_TIMEOUT, NOTEBOOKS, load, missing_needs
from tests.notebooks.checked import PATHS, tags
from tests.short import ALL

# The least share of a notebook's code cells that carry the tag, in percent.
SHARES = dict.fromkeys(("00", "02", "03", "07", "09", "10", "11", "12", "13"), 60)
SHARES |= dict.fromkeys(("04", "05", "06", "08"), 30)
REFUSE = "import sys\n\nsys.modules['tvmlab'] = None"  # Importing the package then fails.


def _marked(path: Path, *marks: str) -> list[str]:
    cells = [cell for cell in load(path).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells if set(marks) & set(tags(cell))]


MARKED = [path for path in PATHS if _marked(path, "tvm-only")]


@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.stem)
def test_marked_cells_name_nothing_of_other_cells(path: Path) -> None:
    cells = [text for text in _marked(path, "tvm-only", "given") if not text.startswith("%%")]
    source = "\n\n".join(cells)
    assert "import tvmlab" not in source
    assert "from tvmlab" not in source
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821"]
    ruff += ["--config", "builtins = ['display']"]  # IPython's
    done = subprocess.run([*ruff, "-"], input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", MARKED, ids=lambda path: path.stem)
def test_marked_cells_run_without_tvmlab(path: Path) -> None:
    if not ALL and path.stem[:2] not in ("00", "05"):
        pytest.skip("takes long: make test-all")
    if missing := missing_needs(load(path)):
        pytest.skip(f"{path.name} needs {', '.join(missing)}: not on this machine")
    cells = [new_code_cell(text) for text in [REFUSE, *_marked(path, "tvm-only", "given")]]
    NotebookClient(
        new_notebook(cells=cells),
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    ).execute()


@pytest.mark.parametrize("name", SHARES)
def test_a_share_of_each_notebook_is_tvm_alone(name: str) -> None:
    [path] = [path for path in PATHS if path.name.startswith(name)]
    every = [cell for cell in load(path).cells if cell.cell_type == "code"]
    assert 100 * len(_marked(path, "tvm-only")) >= SHARES[name] * len(every)
