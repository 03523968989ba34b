"""`scripts/tested.py` enters a run of the tests in docs/tested.md."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import tested

COMMIT = "0123456789"
SUITE = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="0"
skipped="{}" tests="{}" time="{}"></testsuite></testsuites>"""


def test_a_run_is_entered_and_a_changed_checkout_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = (tmp_path / "tests.xml", tmp_path / "notebooks.xml")
    runs[0].write_text(SUITE.format(28, 7000, 900))
    runs[1].write_text(SUITE.format(2, 300, 220))
    table = tmp_path / "tested.md"
    table.write_text(f"| 3.9 | another form | {COMMIT} |\n| 3.9 | old | 76543210fe |\n")
    for name, value in (("ROOT", tmp_path), ("RUNS", runs), ("TABLE", table)):
        monkeypatch.setattr(tested, name, value)
    monkeypatch.delenv("TVMLAB_TEST_ALL", raising=False)
    monkeypatch.setattr(tested, "git", lambda *command: COMMIT if "rev-parse" in command else "")
    tested.main()
    tested.main()
    row, other = [line for line in table.read_text().splitlines() if line.startswith("| 3.")]
    assert other == f"| 3.9 | another form | {COMMIT} |"
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["`make test`", COMMIT]
    assert cells[4] == importlib.metadata.version("apache-tvm")
    assert cells[10:14] == ["6,972", "298", "30", "19"]
    assert row.count("|") == tested.HEAD.splitlines()[-1].count("|")
    monkeypatch.setattr(tested, "git", lambda *command: " M other.py")
    with pytest.raises(SystemExit, match=r"differs from its commit[\s\S]*other\.py"):
        tested.main()
