"""A cell that measures runs alone, and others side by side."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from helpers_short import long
from nbformat import NotebookNode
from notebook_form import IGNORED, dumps, load
from notebook_rules import ROOT
from notebook_runs import run_nbval
from notebook_samples import code, good
from notebook_turns import MEASURED_HERE, MEASURING, ROOM, measures, turn

from notebooks import NOTEBOOKS


def test_nobody_is_beside_who_is_alone_and_he_is_let_in() -> None:
    inside: list[bool] = []
    seen: list[tuple[bool, int]] = []
    together, over = threading.Event(), threading.Event()

    def others() -> None:
        while not over.is_set():
            with turn(alone=False):
                inside.append(False)
                seen.append((False, len(inside)))
                if len(inside) == 2:
                    together.set()
                time.sleep(0.01)
                inside.remove(False)

    crowd = [threading.Thread(target=others) for _ in range(3)]
    for one in crowd:
        one.start()
    try:
        assert together.wait(60)  # or two never were in it at once
        for _ in range(5):
            with turn(alone=True):
                inside.append(True)
                time.sleep(0.05)
                seen.append((True, len(inside)))
                inside.remove(True)
    finally:
        over.set()
        for one in crowd:
            one.join()
    assert [count for alone, count in seen if alone] == [1] * 5


ASKS = """
import fcntl
from pathlib import Path

try:
    fcntl.flock(open(ROOM), fcntl.LOCK_SH | fcntl.LOCK_NB)
    Path(SAID).write_text("others may run")
except BlockingIOError:
    Path(SAID).write_text("alone")
"""


def asking(name: str, said: Path) -> NotebookNode:
    """Return a cell that looks itself whether others may run, and writes what it saw."""
    source = ASKS.replace("ROOM", repr(str(ROOM))).replace("SAID", repr(str(said)))
    return code(name, source)


def test_a_cell_that_measures_is_alone(tmp_path: Path) -> None:
    notebook = good()
    names = ("any", "measures", "kernels")
    notebook.cells += [asking(name, tmp_path / name) for name in names]
    notebook.cells[-2].metadata.tags = [IGNORED]
    path = tmp_path / "03_count_to_three.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    cells, text = run_nbval(path, "-p", "conftest", PYTHONPATH=str(ROOT))
    assert set(cells.values()) == {""}, text
    assert [(tmp_path / name).read_text() for name in names] == ["others may run", "alone", "alone"]


@pytest.mark.parametrize("number", sorted({*MEASURING, *MEASURED_HERE}))
def test_the_cells_that_measure_are_there(number: str) -> None:
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = [cell for cell in load(path).cells if cell.cell_type == "code"]
    assert {cell.id for cell in cells} >= MEASURED_HERE.get(number, set())
    alone = [cell.id for cell in cells if measures(path.name, cell)]
    assert 0 < len(alone) < len(cells)


@long
def test_a_notebook_that_says_nothing_of_itself_runs_too(tmp_path: Path) -> None:
    notebook = good()
    del notebook.metadata["tvmlab"]
    path = tmp_path / "mine.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    cells, text = run_nbval(path, "-p", "conftest", PYTHONPATH=str(ROOT))
    assert set(cells.values()) == {""}, text
