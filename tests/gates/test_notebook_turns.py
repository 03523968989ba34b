"""A cell that measures runs alone, and others side by side."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from notebook_form import IGNORED, dumps
from notebook_rules import ROOT
from notebook_runs import run_nbval
from notebook_samples import code, good
from notebook_turns import turn


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
    assert together.wait(60)  # or two never were in it at once
    for _ in range(5):
        with turn(alone=True):
            inside.append(True)
            time.sleep(0.05)
            seen.append((True, len(inside)))
            inside.remove(True)
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


def test_a_cell_that_measures_is_alone(tmp_path: Path) -> None:
    """The cells look themselves whether others may run."""
    notebook = good()
    room = str(ROOT / "scripts" / "notebooks.py")
    for name in ("any", "measures"):
        source = ASKS.replace("ROOM", repr(room)).replace("SAID", repr(str(tmp_path / name)))
        notebook.cells.append(code(name, source))
    notebook.cells[-1].metadata.tags = [IGNORED]
    path = tmp_path / "02_count_to_three.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    cells, text = run_nbval(path, "-p", "conftest", PYTHONPATH=str(ROOT))
    assert set(cells.values()) == {""}, text
    assert (tmp_path / "any").read_text() == "others may run"
    assert (tmp_path / "measures").read_text() == "alone"
