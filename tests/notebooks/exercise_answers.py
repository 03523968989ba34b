"""Reading the answers to exercises: `notebooks/solutions/` for readers, and what tests add.

A file of solutions is Markdown with one section per exercise, under the exercise's own title. A
section has a right answer, and one wrong answer under each heading of the third level. An answer
is a block of Python that replaces the stub, and a block of text, how the check's message begins.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from notebooks import ROOT

SOLUTIONS = ROOT / "notebooks" / "solutions"
# What a check needs of the cells before, by notebook and exercise: ids of cells, or code (which has
# a space in it) that stands in for cells that measure.
NEEDS = ROOT / "tests" / "notebooks" / "exercise_needs.toml"

RIGHT = "the right answer"
STUB = "the stub"
DONE, NOT_YET = "done", "not yet"


@dataclass(frozen=True)
class Answer:
    """Something that a reader may write.

    Attributes
    ----------
    what : str
        `STUB`, `RIGHT`, or in which way it is wrong.
    cell : str
        The whole source of the exercise's cell with this answer in it.
    says : str
        How the output of the cell begins.
    """

    what: str
    cell: str
    says: str


@dataclass(frozen=True)
class Exercise:
    """An exercise's cell id, the code that it needs, and its answers: the stub first, then wrong
    ones, and the right one last, for it must work after them.
    """

    name: str
    before: list[str]
    answers: list[Answer]


def exercises_of(notebook: NotebookNode, path: Path) -> list[Exercise]:
    """Return a notebook's exercises with their answers, in the order of the file of answers."""
    code = {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}
    file = SOLUTIONS / f"{path.stem}.md"
    assert file.exists(), f"{path.name}: no worked solutions, expected {file.relative_to(ROOT)}"
    needs = tomllib.loads(NEEDS.read_text(encoding="utf-8")).get(path.stem, {})
    names = {title: name for name, title in titles(notebook).items()}
    found = []
    for title, answers in sections(file.read_text(encoding="utf-8")).items():
        assert title in names, f"{file.name}: no exercise of the notebook is called {title!r}"
        source = code[names[title]]
        stub = Answer(STUB, source, NOT_YET)
        filled = [Answer(one.what, answered(source, one.cell), one.says) for one in answers]
        right, *wrong = filled
        pieces = [code.get(piece, piece) for piece in needs.get(names[title], [])]
        found.append(Exercise(names[title], pieces, [stub, *wrong, right]))
    return found


def titles(notebook: NotebookNode) -> dict[str, str]:
    """Return the titles of the exercises, `1. ...`, by the id of the cell with the check."""
    found, title = {}, ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for match in re.finditer(r"^\*\*(\d\. .*?)\.?\*\*", cell.source, re.MULTILINE):
                title = match[1]
        elif checks(cell.source):
            assert title not in found.values(), f"{cell.id}: a second check under {title!r}"
            found[cell.id] = title
    return found


def checks(source: str) -> bool:
    """Say whether a cell has an exercise's check."""
    return "from tvmlab.exercises import" in source


def sections(text: str) -> dict[str, list[Answer]]:
    """Return the answers of a file of solutions by title, the right one first."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        answers = []
        for part in re.split(r"^### ", section, flags=re.MULTILINE):
            heading = part.splitlines()[0].strip()
            blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL))
            assert sorted(blocks) == ["python", "text"], f"{heading}: not one answer and its check"
            what = heading if answers else RIGHT
            says = blocks["text"].rstrip("\n")
            start = NOT_YET if answers else DONE
            assert says.startswith(f"{start}: "), f"{heading}: the check says {says!r}"
            answers.append(Answer(what, blocks["python"], says))
        found[section.splitlines()[0].strip()] = answers
    return found


def answered(source: str, answer: str) -> str:
    """Return an exercise's cell, with another answer in place of the stub.

    The cell has imports, that of a check the last of them, then the stub, then a call of the check;
    where it has another form an assertion says so.
    """
    body = ast.parse(source).body
    first, *_ = (one for one in body if not isinstance(one, ast.Import))
    last = body[-1]
    assert isinstance(first, ast.ImportFrom), source
    assert first.module == "tvmlab.exercises", source
    [name] = [alias.name for alias in first.names]
    assert isinstance(last, ast.Expr), f"the last line does not call {name}:\n{source}"
    assert isinstance(last.value, ast.Call), f"the last line does not call {name}:\n{source}"
    assert ast.unparse(last.value.func) == name, f"the last line does not call {name}:\n{source}"
    lines = source.splitlines()
    head, tail = lines[: first.end_lineno], lines[last.lineno - 1 :]
    return "\n".join([*head, "", answer.strip("\n"), "", *tail])
