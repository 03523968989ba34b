"""`scripts/tested.py` enters a run of the tests in docs/tested.md."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
import tested
import torch

COMMIT = "0123456789"
SUITE = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="0"
skipped="{}" tests="{}" time="{}"></testsuite></testsuites>"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of two runs, and a table with rows of another form and of another commit."""
    runs = (tmp_path / "tests.xml", tmp_path / "notebooks.xml")
    runs[0].write_text(SUITE.format(28, 7000, 900))
    runs[1].write_text(SUITE.format(2, 300, 220))
    table = tmp_path / "tested.md"
    table.write_text(f"| 3.9 | another form | {COMMIT} |\n| 3.9 | old | 76543210fe |\n")
    for name, value in (("ROOT", tmp_path), ("RUNS", runs), ("TABLE", table)):
        monkeypatch.setattr(tested, name, value)
    monkeypatch.delenv("TVMLAB_TEST_ALL", raising=False)
    return tmp_path


def test_the_table_has_one_row_for_each_python_and_form_of_the_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "git", lambda *command: COMMIT if "rev-parse" in command else "")
    tested.main()
    tested.main()
    monkeypatch.setenv("TVMLAB_TEST_ALL", "1")
    tested.main()
    text = tested.TABLE.read_text()
    assert "76543210fe" not in text
    other, *rows = [line for line in text.splitlines() if line.startswith("| 3.")][::-1]
    assert other == f"| 3.9 | another form | {COMMIT} |"
    assert len(rows) == 2
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[0] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert cells[1:3] == ["`make test`", COMMIT]
    assert cells[4] == importlib.metadata.version("apache-tvm")
    assert cells[7] == torch.__version__
    assert cells[10:14] == ["6,972", "298", "30", "19"]
    assert rows[0].count("|") == tested.HEAD.splitlines()[-1].count("|")


def test_a_checkout_that_differs_from_its_commit_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "git", lambda *command: " M other.py")
    before = tested.TABLE.read_text()
    with pytest.raises(SystemExit, match=r"differs from its commit[\s\S]*other\.py"):
        tested.main()
    assert tested.TABLE.read_text() == before


def test_the_committed_table_is_of_this_form() -> None:
    text = (Path(tested.__file__).parents[1] / "docs" / "tested.md").read_text(encoding="utf-8")
    assert text.startswith(tested.HEAD)
    rows = text.removeprefix(tested.HEAD).splitlines()
    assert len({row.split("|")[3] for row in rows}) <= 1
