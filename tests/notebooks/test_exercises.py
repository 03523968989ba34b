"""Every exercise takes its right answer, and says of wrong ones what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from notebooks import execute, load, missing_needs
from tests.notebooks.checked import PATHS, texts
from tests.notebooks.exercise_answers import Exercise, answered, exercises_of, sections, titles


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_exercises_keep_their_form(path: Path) -> None:
    notebook = load(path)
    named = titles(notebook)
    assert len(named) >= 2
    for name in named:
        [cell] = [cell for cell in notebook.cells if cell.id == name]
        # An import, the stub that the reader replaces, and one call.
        assert answered(cell.source, "pass").count("check_") == 2, name
        assert "not yet" in "".join(texts(cell)), name
    text = (path.parent / "solutions" / f"{path.stem}.md").read_text(encoding="utf-8")
    solved = sections(text)
    assert list(solved) == list(named.values())
    assert all(len(answers) >= 4 for answers in solved.values())  # Three that are wrong.
    assert f"(../{path.name}#On-your-own)" in text
    links = [cell for cell in notebook.cells if f"(solutions/{path.stem}.md)" in cell.source]
    assert len(links) == 1


RESET = "__import__('gc').freeze()\n%reset -sf"
Verdict = tuple[dict[str, str], dict[str, str]]


def judged(found: dict[str, list[Exercise]], folder: Path) -> dict[str, Verdict]:
    """Run the answers to exercises of some notebooks; return a verdict on each notebook.

    It is what each stub's check says, and where a check is wrong. One kernel imports everything
    once, and each notebook begins without a name. `%reset` collects garbage, for which it walks
    through everything that is imported, unless that is frozen.
    """
    made, tried = new_notebook(), {}
    for notebook, exercises_of_it in found.items():
        short = notebook[:2]
        made.cells.append(new_code_cell(RESET, id=f"{short}-reset"))
        for one in exercises_of_it:
            for number, source in enumerate(one.before):
                made.cells.append(new_code_cell(source, id=f"{short}-{one.name}-before-{number}"))
            for number, answer in enumerate(one.answers):
                made.cells.append(new_code_cell(answer.cell, id=f"{short}-{one.name}-{number}"))
                tried[f"{short}-{one.name}-{number}"] = notebook, one.name, answer
    execute(made, folder)
    said = {cell.id: "".join(texts(cell)) for cell in made.cells}
    verdicts: dict[str, Verdict] = {notebook: ({}, {}) for notebook in found}
    for name, (notebook, exercise, answer) in tried.items():
        stubs, wrongly = verdicts[notebook]
        stubs.setdefault(exercise, said[name])  # the stub is tried first
        if not _begins(said[name], answer.says):
            wrongly[f"{exercise}, {answer.what}"] = said[name]
    return verdicts


def _begins(text: str, start: str) -> bool:
    """Say whether the text begins so, and not in the middle of a word."""
    return text.startswith(start) and not text[len(start) : len(start) + 1].isalnum()


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    notebooks = {path: load(path) for path in PATHS}
    possible = {
        path.stem: exercises_of(notebook, path)
        for path, notebook in notebooks.items()
        if not missing_needs(notebook)
    }
    return judged(possible, PATHS[0].parent)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_right_answers_are_taken_and_wrong_ones_explained(
    path: Path, verdicts: dict[str, Verdict]
) -> None:
    notebook = load(path)
    if missing := missing_needs(notebook):
        pytest.skip(f"{path.name} needs {', '.join(missing)}: not on this machine")
    stubs, wrongly = verdicts[path.stem]
    assert not wrongly, f"{path.name}: these checks say the wrong thing: {wrongly}"
    committed = {cell.id: "".join(texts(cell)) for cell in notebook.cells if "outputs" in cell}
    assert stubs == {name: committed[name] for name in titles(notebook)}
