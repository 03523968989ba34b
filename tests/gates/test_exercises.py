"""Every exercise takes a right answer and refuses wrong ones: `tests/solutions/` has them all.

One file a notebook, one table an exercise: `stub` is what the reader replaces in the cell, `right`
and each of `wrong` stand in its place. `before` lists what the exercise needs, ids of cells or
code in their stead, so that no long measurement runs again.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from notebook_form import load, missing_needs
from notebook_rules import ROOT, Page, exercises, texts
from notebook_samples import good

from notebooks import execute, find

NOTEBOOKS = sorted(find([]))
SOLUTIONS = ROOT / "tests" / "solutions"
DONE = re.compile(r"done\b")
NOT_YET = re.compile("not yet")
RIGHT = "the right answer"


def answers(path: Path) -> dict[str, Any]:
    """Return the solutions to a notebook's exercises, by cell id, in the order of the file."""
    file = SOLUTIONS / f"{path.stem}.toml"
    assert file.exists(), f"{path.name}: no worked solutions, expected {file.relative_to(ROOT)}"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def answered(source: str, stub: str, answer: str, name: str) -> str:
    """Return the cell with the reader's lines in place of the stub."""
    stub, answer = stub.strip("\n"), answer.strip("\n")
    assert source.count(stub) == 1, f"{name}: the stub stands {source.count(stub)} times in it"
    return source.replace(stub, answer)


def trial(notebook: NotebookNode, solutions: dict[str, Any]) -> tuple[NotebookNode, dict[str, str]]:
    """Return a notebook of the answers and what they need, and by cell id what each answer is."""
    code = {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}
    made, tried = new_notebook(), {}
    for name, exercise in solutions.items():
        for number, piece in enumerate(exercise.get("before", [])):
            is_id = re.fullmatch(r"[a-z0-9-]+", piece)
            source, own = (code[piece], piece) if is_id else (piece, f"{name}-before-{number}")
            made.cells.append(new_code_cell(source, id=own))
        # The stub and the wrong answers come first: the right one must work after them.
        pieces = {"the stub": exercise["stub"], **exercise["wrong"], RIGHT: exercise["right"]}
        for number, (what, answer) in enumerate(pieces.items()):
            own = f"{name}-{number}"
            source = answered(code[name], exercise["stub"], answer, name)
            made.cells.append(new_code_cell(source, id=own))
            tried[own] = what
    return made, tried


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_has_its_answers(path: Path) -> None:
    page = Page(path, path.read_text(encoding="utf-8"))
    solutions = answers(path)
    assert sorted(solutions) == sorted(exercises(page))
    for name, exercise in solutions.items():
        assert exercise["wrong"], f"{path.name}, {name}: no wrong answer"


def judged(
    notebook: NotebookNode, solutions: dict[str, Any], folder: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Run the answers; return what each stub's check says, and where a check is wrong."""
    made, tried = trial(notebook, solutions)
    execute(made, folder)
    said = {cell.id: "".join(texts(cell)) for cell in made.cells}
    wrongly = {
        f"{name.rpartition('-')[0]}, {what}": said[name]
        for name, what in tried.items()
        if not (DONE if what == RIGHT else NOT_YET).match(said[name])
    }
    return {name: said[f"{name}-0"] for name in solutions}, wrongly


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_right_answers_are_taken_and_wrong_ones_refused(path: Path) -> None:
    notebook = load(path)
    if missing := missing_needs(notebook):
        pytest.skip(f"{path.name} needs {', '.join(missing)}: not on this machine")
    solutions = answers(path)
    stubs, wrongly = judged(notebook, solutions, path.parent)
    assert not wrongly, f"{path.name}: these checks say the wrong thing: {wrongly}"
    committed = {cell.id: "".join(texts(cell)) for cell in notebook.cells if "outputs" in cell}
    assert stubs == {name: committed[name] for name in solutions}, path.name


def test_a_check_that_judges_wrongly_is_found(tmp_path: Path) -> None:
    notebook = good()
    checks = {"four": "answer > 3", "five": "answer == limit"}
    for name, check in checks.items():
        cell = next(cell for cell in notebook.cells if cell.id == f"exercise-{name}")
        cell.source = f"answer = 0\nprint('done' if {check} else 'not yet')"
    answer = {"stub": "answer = 0", "right": "answer = 4", "wrong": {"too far": "answer = 5"}}
    solutions = {"exercise-four": answer, "exercise-five": answer | {"before": ["limit = 5"]}}
    stubs, wrongly = judged(notebook, solutions, tmp_path)
    assert stubs == dict.fromkeys(solutions, "not yet\n")
    assert wrongly == {
        "exercise-four, too far": "done\n",
        "exercise-five, too far": "done\n",
        "exercise-five, the right answer": "not yet\n",
    }


def test_a_stub_that_is_not_in_the_cell_is_refused() -> None:
    answer = {"stub": "answer = 7", "right": "answer = 4", "wrong": {}}
    with pytest.raises(AssertionError, match="exercise-four: the stub stands 0 times"):
        trial(good(), {"exercise-four": answer})
