"""The gate catches what it is there to catch: every spoilt output fails, and nothing else."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from helpers_short import long
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbval.plugin import get_sanitize_patterns
from notebook_corruption import (
    CORRUPTIONS,
    Corruption,
    corrupt,
    rank_changed,
    shape_changed,
)
from notebook_form import canonical, dumps, load
from notebook_replay import NAME, install
from notebook_rules import ROOT, texts
from notebook_runs import run_nbval
from notebook_samples import good

from notebooks import find

NOTEBOOKS = sorted(find([]))


def assert_caught(
    path: Path, spoilt: dict[str, str], kernel: str | None = None, **environment: str
) -> None:
    """Run nbval on a spoilt notebook: the spoilt cells differ, and only they."""
    cells, text = run_nbval(path, kernel=kernel, **environment)
    passed = {name for name in spoilt if not cells[name]}
    assert not passed, f"not caught in {path.name}: {[(n, spoilt[n]) for n in sorted(passed)]}"
    failed = {name: said for name, said in cells.items() if said and name not in spoilt}
    assert not failed, f"{path.name}: cells that nobody touched fail: {failed}"
    for name in spoilt:
        assert "Cell outputs differ" in cells[name], f"{path.name}, {name}: {cells[name]}"
    assert len(cells) > len(spoilt), f"{path.name}: no cell was left alone\n{text}"


def whole() -> NotebookNode:
    """Put the cells of all notebooks into one: nbval starts once for it."""
    made = new_notebook()
    for path in NOTEBOOKS:
        for cell in load(path).cells:
            cell.id = f"{path.stem[:2]}-{len(made.cells)}-{cell.id}"[:64]
            made.cells.append(cell)
    return made


@long
def test_every_spoilt_output_is_caught(tmp_path: Path) -> None:
    """What the cells put out is replayed: that they do put it out is nbval's run of the notebooks.

    On the sample below they run.
    """
    notebook = whole()
    played, spoilt = tmp_path / "played.ipynb", tmp_path / "spoilt.ipynb"
    played.write_text(dumps(notebook), encoding="utf-8")
    done = corrupt(notebook, seed="all")
    spoilt.write_text(dumps(notebook), encoding="utf-8")
    assert_caught(spoilt, done, kernel=NAME, **install(tmp_path, played))


def test_many_corruptions_of_many_kinds() -> None:
    """Every kind is tried on the sample below; here on what the notebooks really put out."""
    kinds = Counter(corrupt(whole(), "all").values())
    assert set(kinds) == {kind.__name__ for kind in CORRUPTIONS}
    assert min(kinds.values()) > 1, kinds


def test_the_choice_is_the_same_every_time() -> None:
    first, second = copy.deepcopy(good()), copy.deepcopy(good())
    assert corrupt(first, "a") == corrupt(second, "a")
    assert dumps(first) == dumps(second)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.__name__)
def test_each_kind_changes_the_file(corruption: Corruption) -> None:
    before = canonical(good())
    after = copy.deepcopy(before)
    changed = [cell.id for cell in after.cells if cell.get("outputs") and corruption(cell)]
    assert changed
    for cell, was in zip(after.cells, before.cells, strict=True):
        assert (cell != was) == (cell.id in changed)


def test_nbval_catches_each_kind(tmp_path: Path) -> None:
    notebook = good()
    setup = [cell for cell in notebook.cells if cell.id in ("count", "clock", "clock-runs")]
    notebook.cells = list(setup)
    for number, kind in enumerate(CORRUPTIONS):
        cell = next(copy.deepcopy(cell) for cell in good().cells if cell.id == "pair")
        cell.id = f"pair-{number}"
        cell.source = "print('first 10\\nsecond 20')\n(1, 3, 224)"
        cell.outputs[0].text = "first 10\nsecond 20\n"
        if kind in (shape_changed, rank_changed):
            cell.outputs[0].text = "no shape\n"
            cell.source = "print('no shape')\n(1, 3, 224)"
        assert kind(cell)
        notebook.cells.append(cell)
    spoilt = {f"Cell {n + len(setup)}": kind.__name__ for n, kind in enumerate(CORRUPTIONS)}
    path = tmp_path / "01_sample.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    assert_caught(path, spoilt)


# What nbval does not catch: rules of the structure test are there for these.

Blind = Callable[[dict[str, Any]], object]
BLIND: dict[str, Blind] = {
    # No execution count, no comparison: execution_counts.
    "count": lambda cell: cell.update(execution_count=None, outputs=[]),
    # An unknown tag steers nothing, a known one hides the output: ignored_then_compared.
    "clock": lambda cell: cell["outputs"][0].update(text="spoilt\n"),
    # What a carriage return hides: readable_output.
    "clock-runs": lambda cell: cell["outputs"][0].update(text="spoilt\rit ticks\n"),
    # Another picture under the same alt text: figures_have_alt.
    "figure": lambda cell: cell["outputs"][0]["data"].update({"image/png": "AAAA"}),
    # The order of two kinds of output.
    "pair": lambda cell: cell["outputs"].reverse(),
    # The frames of an error.
    "fails": lambda cell: cell["outputs"][0].update(traceback=["spoilt"]),
}


@long
def test_what_nbval_is_blind_to(tmp_path: Path) -> None:
    """If one of these begins to fail, nbval has learnt to see it and a rule can go."""
    value = json.loads(dumps(good()))
    for cell in value["cells"]:
        if cell["id"] in BLIND:
            BLIND[cell["id"]](cell)
    path = tmp_path / "01_sample.ipynb"
    path.write_text(json.dumps(value), encoding="utf-8")
    cells, text = run_nbval(path)
    assert set(cells.values()) == {""}, text
    assert len(cells) == 8  # Code cells of the sample: none got lost.


def test_the_sanitize_file_hides_nothing_it_need_not() -> None:
    """A pattern that no compared output needs would only let errors through."""
    text = (ROOT / "tests" / "sanitize.cfg").read_text(encoding="utf-8")
    assert text.count("\nregex:") == len(get_sanitize_patterns(text))
    seen = "\n".join(
        output
        for path in NOTEBOOKS
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
        for output in texts(cell)
    )
    for pattern, _ in get_sanitize_patterns(text):
        assert re.search(pattern, seen), f"no output needs the pattern {pattern!r}"
