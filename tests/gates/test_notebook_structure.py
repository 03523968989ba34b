"""Every notebook of the repository keeps every rule."""

from __future__ import annotations

from pathlib import Path

import notebook_links  # noqa: F401  (enters its rules into RULES)
import pytest
from notebook_form import load
from notebook_rules import ROOT, RULES, Page, Rule

from notebooks import find

NOTEBOOKS = find([])
TITLES = {
    path.name: load(path).metadata.get("tvmlab", {}).get("title", "")
    for path in NOTEBOOKS
    if path.parent == ROOT / "notebooks"
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_the_rule(path: Path, rule: Rule) -> None:
    page = Page(path, path.read_text(encoding="utf-8"), TITLES)
    assert [f"{path.name}: {problem}" for problem in rule(page)] == []


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def test_the_notebooks_are_numbered_without_a_gap() -> None:
    assert [name[:3] for name in TITLES] == [f"{n:02d}_" for n in range(len(TITLES))]
