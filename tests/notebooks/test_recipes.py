"""Each recipe of notebook 11 runs alone, and prints the output that the notebook shows.

It runs in a fresh interpreter and an empty folder, as the notebook says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat import NotebookNode

from notebooks import NOTEBOOKS, load, missing_needs
from tests.notebooks.checked import IGNORED, tags, texts
from tests.short import long

NOTEBOOK = load(NOTEBOOKS / "11_recipes.ipynb")
SETUP = "folder"  # the cell that gives the notebook a folder to write to
OTHERS = ("torchinductor_", ".ses")  # what PyTorch and ONNX Runtime keep among temporary files


def recipes() -> dict[str, list[tuple[str, NotebookNode, NotebookNode]]]:
    """Return heading, prose and code of each recipe, by its task."""
    found: dict[str, list[tuple[str, NotebookNode, NotebookNode]]] = {}
    section, before = "", None
    for cell in NOTEBOOK.cells:
        if cell.cell_type == "code" and cell.id != SETUP:
            assert before is not None, f"{cell.id}: it has no heading"
            found[section].append((before[0], before[1], cell))
            before = None
            continue
        for level, text in re.findall(r"^(##+) (.*)$", cell.source, re.MULTILINE):
            if text == "On your own":
                return found
            if level == "##":
                section = text
                found[section] = []
            else:
                assert before is None, f"{cell.id}: two headings and no code between them"
                before = text, cell
    raise AssertionError("the notebook has no exercises")


RECIPES = {task: some for task, some in recipes().items() if some}
ERRORS = "Fix an error"  # the chapter that is indexed by error message
ALL = [each for some in RECIPES.values() for each in some]


def test_the_index_has_all_recipes_in_their_order() -> None:
    [index] = [cell.source for cell in NOTEBOOK.cells if cell.id == "index"]
    rows = re.findall(r"^\| (.*?) \| (\[.*) \|$", index, re.MULTILINE)
    listed = {
        task: re.findall(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\S+)\)", text) for task, text in rows
    }
    assert listed == {
        task[0].lower() + task[1:]: [(name, "#" + name.replace(" ", "-")) for name, _, _ in some]
        for task, some in RECIPES.items()
        if task != ERRORS
    }


def test_each_error_message_in_the_index_is_printed_by_the_recipe_that_fixes_it() -> None:
    indexes = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.id.startswith("index-"))
    rows = re.findall(r"^\| (`+) ?(.*?) ?\1 \| \[(.*)\]\(.*\) \|$", indexes, re.MULTILINE)
    printed = {name: "".join(texts(code)) for name, _, code in RECIPES[ERRORS]}
    for _, message, name in rows:
        assert message in printed[name]
    assert {name for *_, name in rows} == set(printed)


def test_most_recipes_need_tvm_alone() -> None:
    assert sum("tvm-only" in tags(code) for *_, code in ALL) >= 35


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a folder for temporary files that no other test uses."""
    return dict(os.environ) | {"TMPDIR": str(tmp_path_factory.mktemp("temporary"))}


def test_each_has_every_name_it_uses(tmp_path: Path) -> None:
    """No name comes from a cell above, so that each cell works when it is copied alone."""
    for *_, code in ALL:
        (tmp_path / f"{code.id}.py").write_text(code.source, encoding="utf-8")
    # The files, not their folder: of a folder ruff leaves out what its settings, or git's, ignore.
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) == len(ALL)
    line = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", *files]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "code",
    [  # The short form runs every sixteenth; nbval runs all of them in one kernel.
        pytest.param(code, id=code.id, marks=() if place % 16 == 0 else long)
        for place, (*_, code) in enumerate(ALL)
    ],
)
def test_it_runs_alone_in_an_empty_folder(
    code: NotebookNode, tmp_path: Path, environment: dict[str, str]
) -> None:
    if missing := missing_needs(NOTEBOOK):
        pytest.skip(f"11_recipes.ipynb needs {', '.join(missing)}: not on this machine")
    # A file, and not the option -c, because TVMScript reads the source of its functions.
    script, folder = tmp_path / "recipe.py", tmp_path / "empty"
    script.write_text(code.source, encoding="utf-8")
    folder.mkdir()
    line = [sys.executable, str(script)]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    if IGNORED not in tags(code):
        assert done.stdout == "".join(texts(code))
    left = {path.name for path in Path(environment["TMPDIR"]).iterdir()}
    assert not [name for name in left if not name.startswith(OTHERS)], "it leaves files behind"
