"""What `make referee` runs, prints, writes and answers."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import referee
import referee_report as report
from referee_report import Measure, Size

GOOD = Measure("one", "0", "<= 1", True)


def rows(*measures: Measure) -> list[dict]:
    return [measure.row("row") for measure in measures]


@pytest.mark.parametrize(
    ("measure", "met"),
    [
        (report.most("a", 1, 1), True), (report.most("a", 1.01, 1), False),
        (report.most("a", float("nan"), 1), False), (report.least("a", 1, 1), True),
        (report.least("a", 0.99, 1), False), (report.least("a", float("nan"), 1), False),
        (report.holds("a", "x", "y", False), False), (report.absent("a", "y"), None),
    ],
)  # fmt: skip
def test_a_bar_is_met_or_not(measure: Measure, met: bool | None) -> None:
    assert measure.met is met


def test_the_table_says_what_is_missed_and_what_is_skipped() -> None:
    text = report.table(rows(GOOD, report.most("two", 2.5, 1, "%"), report.absent("three", "x")))
    lines = text.splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["met?", "yes", "no"]
    assert lines[2].split()[:2] == ["two", "2.5%"]
    assert "skipped: not there" in lines[3]
    assert lines[-1] == "1 of 3 measures are missed, 1 skipped"
    assert report.table(rows(GOOD)).endswith("no measure is missed")


def test_fewer_inputs_never_more() -> None:
    assert [Size(Path(), n).of(200) for n in (None, 10, 300)] == [200, 10, 200]


@pytest.mark.parametrize("row", referee.ROWS)
def test_every_row_is_there(row: str) -> None:
    module, name = referee.ROWS[row].split(".")
    assert getattr(importlib.import_module(module), name).__doc__


@pytest.mark.parametrize(
    ("measures", "status"),
    [([GOOD], 0), ([GOOD, report.absent("a", "b")], 0), ([GOOD, report.most("a", 2, 1)], 1)],
)
def test_the_exit_status_and_the_file(
    measures: list[Measure],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(referee, "compare", lambda row, size: measures)
    output = tmp_path / "new" / "referee.json"
    assert referee.main(["--rows", "qnn", "litert", "--output", str(output)]) == status
    written = json.loads(output.read_text())
    assert [row["row"] for row in written] == ["qnn"] * len(measures) + ["litert"] * len(measures)
    assert [path.name for path in output.parent.iterdir()] == ["referee.json"]
    assert "met?" in capsys.readouterr().out


def test_a_row_that_fails_is_missed_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(row: str, size: Size) -> list[Measure]:
        if row == "qnn":
            raise ValueError("of no use")
        return [GOOD]

    monkeypatch.setattr(referee, "compare", compare)
    output = tmp_path / "referee.json"
    assert referee.main(["--rows", "qnn", "litert", "--output", str(output)]) == 1
    said = capsys.readouterr()
    assert "failed: ValueError" in said.out
    assert "of no use" in said.err
    assert [row["met"] for row in json.loads(output.read_text())] == [False, True]


@pytest.mark.parametrize(
    "arguments", [["--rows", "none"], ["--inputs", "0"], ["--golden", "no such folder"]]
)
def test_words_that_mean_nothing(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        referee.main(arguments)
    assert caught.value.code == 2


def test_the_customers_convolution() -> None:
    """The shortest row, as it is; Relay's outputs are not among the selection."""
    found = referee.compare("rewrite", Size(Path(__file__).parent / "data"))
    assert [measure.met for measure in found] == [True] * 4 + [None]
    assert found[-1].found == report.ABSENT


@pytest.mark.parametrize("row", ["qnn", "rewrite"])
def test_what_is_not_there_is_skipped(row: str, tmp_path: Path) -> None:
    (found,) = referee.compare(row, Size(tmp_path))
    assert found.met is None
    assert found.found == report.ABSENT
