"""Every exercise takes its right answer, and says of wrong ones what is wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from exercise_answers import (
    Answer,
    Exercise,
    answered,
    checks,
    exercises_of,
    sections,
    titles,
)
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from notebook_form import load, missing_needs
from notebook_rules import Page, exercises, texts
from notebook_samples import good

from notebooks import execute, find

NOTEBOOKS = sorted(find([]))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_has_its_answers(path: Path) -> None:
    page = Page(path, path.read_text(encoding="utf-8"))
    found = exercises_of(page.nb, path)
    assert sorted(one.name for one in found) == sorted(exercises(page))
    assert all(len(one.answers) > 2 for one in found)  # The stub, the right one, and more.


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_exercises_keep_their_form(path: Path) -> None:
    notebook = load(path)
    named = titles(notebook)
    assert len(named) >= 2
    for name in named:
        [cell] = [cell for cell in notebook.cells if cell.id == name]
        # An import, what the reader replaces, and one call.
        assert answered(cell.source, "pass").count("check_") == 2, name
    text = (path.parent / "solutions" / f"{path.stem}.md").read_text(encoding="utf-8")
    solved = sections(text)
    assert list(solved) == list(named.values())
    assert all(len(answers) >= 4 for answers in solved.values())  # Three that are wrong.
    assert f"(../{path.name}#On-your-own)" in text
    links = [cell for cell in notebook.cells if f"(solutions/{path.stem}.md)" in cell.source]
    assert len(links) == 1


Verdict = tuple[dict[str, str], dict[str, str]]


def judged(found: dict[str, list[Exercise]], folder: Path) -> dict[str, Verdict]:
    """Run the answers to exercises of some notebooks; return a verdict on each notebook.

    It is what each stub's check says, and where a check is wrong. One kernel imports everything
    once, and each notebook begins without a name.
    """
    made, tried = new_notebook(), {}
    for notebook, exercises_of_it in found.items():
        short = notebook[:2]
        made.cells.append(new_code_cell("%reset -sf", id=f"{short}-reset"))
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
    notebooks = {path: load(path) for path in NOTEBOOKS}
    possible = {
        path.stem: exercises_of(notebook, path)
        for path, notebook in notebooks.items()
        if not missing_needs(notebook)
    }
    return judged(possible, NOTEBOOKS[0].parent)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
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


# The gate itself.

CELL = "from tvmlab.exercises import check_four\n\nanswer = 0\n\ncheck_four(answer)"
SECTION = """
## 1. Four

Count.

```python
answer = 4
```

```text
done: four
```

### Too far

```python
answer = 5
```

```text
not yet: one too many
```
"""


def test_a_check_that_judges_wrongly_is_found(tmp_path: Path) -> None:
    def cell(check: str, value: int) -> str:
        return f"answer = {value}\nprint('done: so' if {check} else 'not yet: less')"

    def tried(name: str, check: str, before: list[str], hint: str) -> Exercise:
        says = {0: "not yet", 5: f"not yet: {hint}", 4: "done: so"}
        answers = [Answer(str(value), cell(check, value), text) for value, text in says.items()]
        return Exercise(name, before, answers)

    found = [
        tried("four", "answer > 3", [], "less"),
        tried("five", "answer == limit", ["limit = 5"], "less"),
        tried("three", "answer == 4", [], "more"),
        tried("cut", "answer == 4", [], "le"),
    ]
    stubs, wrongly = judged({"99_samples": found}, tmp_path)["99_samples"]
    assert stubs == dict.fromkeys(["four", "five", "three", "cut"], "not yet: less\n")
    assert wrongly == {
        "four, 5": "done: so\n",
        "five, 5": "done: so\n",
        "five, 4": "not yet: less\n",
        "three, 5": "not yet: less\n",
        "cut, 5": "not yet: less\n",
    }


def test_a_file_of_solutions_is_read() -> None:
    assert sections(SECTION) == {
        "1. Four": [
            Answer("the right answer", "answer = 4\n", "done: four"),
            Answer("Too far", "answer = 5\n", "not yet: one too many"),
        ]
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("done: four", "four"),
        ("not yet: one", "one"),
        ("```text\nnot yet: one too many\n```", ""),
        ("```python\nanswer = 5\n```", ""),
    ],
)
def test_an_answer_without_its_check_is_refused(old: str, new: str) -> None:
    assert old in SECTION
    with pytest.raises(AssertionError, match=r"Four|Too far"):
        sections(SECTION.replace(old, new))


def test_an_answer_takes_the_place_of_the_stub() -> None:
    cell = answered(CELL, "\nanswer = 4\n")
    assert cell == CELL.replace("= 0", "= 4")
    assert ast.parse(cell)


@pytest.mark.parametrize("tail", ["", "answer", "print(answer)", "check_four(answer)\nanswer = 1"])
def test_a_cell_that_does_not_end_in_its_check_is_refused(tail: str) -> None:
    with pytest.raises(AssertionError, match="does not call check_four"):
        answered(CELL.replace("check_four(answer)", tail), "answer = 4")


def _notebook(*sources: str) -> NotebookNode:
    notebook = good()
    cells = [cell for cell in notebook.cells if cell.id.startswith("exercise-")]
    for cell, source in zip(cells, sources, strict=True):
        cell.source = source
    own = next(cell for cell in notebook.cells if cell.id == "own")
    own.source += "\n\n**1. Count.** To four.\n\nSo.\n\n**2. Who has five?** Count."
    return notebook


def test_a_check_belongs_to_the_title_above_it() -> None:
    notebook = _notebook("print(1)", CELL)
    assert titles(notebook) == {"exercise-five": "2. Who has five?"}
    assert checks(CELL)
    assert not checks("print(1)")


def test_two_checks_under_one_title_are_refused() -> None:
    with pytest.raises(AssertionError, match="a second check under '2"):
        titles(_notebook(CELL, CELL))
