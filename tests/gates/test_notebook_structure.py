"""Every notebook of the repository keeps every rule."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import notebook_links  # noqa: F401  (enters its rules into RULES)
import notebook_metadata  # noqa: F401  (as well)
import pytest
from notebook_contents import CONTENTS, stale
from notebook_form import load
from notebook_rules import ROOT, RULES, Page, Rule
from notebook_runs import STRICT

from notebooks import OFFLINE, find

NOTEBOOKS = sorted(find([]))
TITLES = {path.name: load(path).metadata.get("tvmlab", {}).get("title", "") for path in NOTEBOOKS}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_the_rule(path: Path, rule: Rule) -> None:
    page = Page(path, path.read_text(encoding="utf-8"), TITLES)
    assert [f"{path.name}: {problem}" for problem in rule(page)] == []


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def test_the_notebooks_are_numbered_in_reading_order() -> None:
    assert [name[:3] for name in TITLES] == [f"{number:02}_" for number in range(len(TITLES))]


def test_the_table_of_contents_is_made_from_their_metadata() -> None:
    wrong = stale(NOTEBOOKS[0].parent / CONTENTS)
    assert wrong == [], f"run `make notebooks ARGS=notebooks/{CONTENTS}`"


def test_make_test_compares_every_notebook_strictly_and_offline() -> None:
    """The gates prove what nbval does with these options; `make test` must use the same."""
    run = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True)
    lines = run.stdout.replace("\\\n", " ").splitlines()
    [words] = [shlex.split(line) for line in lines if " --nbval " in line]
    options = " ".join(words).replace(f"{ROOT}/", "")
    for option in STRICT:
        assert option.replace(f"{ROOT}/", "").replace("=", " ") in options.replace("=", " ")
    assert f"PYTHONPATH={OFFLINE.relative_to(ROOT)}" in options
    assert not {"--nbval-lax", "-x", "-k", "--deselect", "--ignore"} & set(words)
    assert {"-n", "--dist", "loadfile"} <= set(words)  # a notebook's cells belong to one process
    assert sorted(ROOT / word for word in words if word.endswith(".ipynb")) == NOTEBOOKS
