"""The table of tested versions is written from what a run left, and only from a good one."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import tested

COMMIT = "0123456789"
SUITE = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="{errors}"
failures="{failures}" skipped="{skipped}" tests="{tests}" time="{time}"></testsuite></testsuites>"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two good runs, and a table that is not there yet."""
    paths = tuple(tmp_path / f"{run}.xml" for run in ("tests", "notebooks", "measuring"))
    monkeypatch.setattr(tested, "ROOT", tmp_path)
    monkeypatch.setattr(tested, "RUNS", paths)
    monkeypatch.setattr(tested, "TABLE", tmp_path / "tested.md")
    monkeypatch.setattr(tested, "commit", lambda: COMMIT)
    write(paths[0], tests=7000, skipped=28, time=900)
    write(paths[1], tests=300, skipped=2, time=220)
    write(paths[2], tests=200, skipped=0, time=200)
    return paths


def write(path: Path, **values: float) -> None:
    path.write_text(SUITE.format(**{"errors": 0, "failures": 0} | values))


def test_a_row_of_a_good_run(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVMLAB_TEST_ALL", raising=False)
    tested.main()
    tested.main()  # The same Python again: its row is written anew.
    rows = [line for line in tested.TABLE.read_text().splitlines() if line.startswith("| 3.")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[0] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert cells[1] == "`make test`"
    assert cells[2] == COMMIT
    assert cells[4] == importlib.metadata.version("apache-tvm")
    assert cells[7] == torch.__version__
    assert cells[10:14] == ["6,972", "498", "30", "22"]
    head = next(line for line in tested.HEAD.splitlines() if line.startswith("| Python"))
    assert head.count("|") == rows[0].count("|")


def test_rows_of_other_pythons_and_of_the_other_form_stay_but_not_of_other_commits(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVMLAB_TEST_ALL", "1")
    stays, goes = f"| 3.9 | its form | {COMMIT} |", "| 3.9 | another | 76543210fe |"
    tested.TABLE.write_text(f"{stays}\n{goes}\n")
    tested.main()
    monkeypatch.delenv("TVMLAB_TEST_ALL")
    tested.main()
    text = tested.TABLE.read_text()
    assert stays in text
    assert goes not in text
    assert text.count("| `make test` |") == text.count("| `TVMLAB_TEST_ALL=1 make test` |") == 1


def test_the_committed_table_is_of_this_form() -> None:
    text = (Path(tested.__file__).parents[1] / "docs" / "tested.md").read_text(encoding="utf-8")
    assert text.startswith(tested.HEAD)
    rows = text.removeprefix(tested.HEAD).splitlines()
    assert {row.count("|") for row in rows} <= {tested.HEAD.splitlines()[-1].count("|")}
    assert len({row.split("|")[3] for row in rows}) <= 1


def test_the_commit_is_that_of_an_unchanged_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="git"):
        tested.commit()
    (tmp_path / "docs").mkdir()
    table, other = tmp_path / "docs" / "tested.md", tmp_path / "other.py"
    for path in (table, other):
        path.write_text("old\n")
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for arguments in (["init"], ["add", "."], [*own, "commit", "-m", "old"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    table.write_text("new\n")
    assert re.fullmatch("[0-9a-f]{10}", tested.commit())
    other.write_text("new\n")
    with pytest.raises(SystemExit, match=r"differs from its commit.*other\.py"):
        tested.commit()


@pytest.mark.parametrize("kind", ["errors", "failures"])
def test_a_run_that_failed_writes_nothing(runs: tuple[Path, Path], kind: str) -> None:
    write(runs[1], tests=9, skipped=0, time=1, **{kind: 1})
    with pytest.raises(SystemExit, match="1 failed, so nothing is written"):
        tested.main()
    assert not tested.TABLE.exists()


def test_a_run_that_is_not_there(runs: tuple[Path, Path]) -> None:
    runs[0].unlink()
    with pytest.raises(SystemExit, match="make tested"):
        tested.main()
