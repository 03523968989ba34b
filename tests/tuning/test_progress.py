"""What is shown while tuning: lines, or nothing."""

import gc

import pytest

from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning.progress import Progress
from tvmlab.tuning.session import tune_tasks


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def test_lines_are_few_and_whole(capsys):
    """A line every five seconds and at the end, with the best, the rule and the time left."""
    clock = Clock()
    shown = Progress(silent=False, clock=clock)
    shown.begin(40, 20, None)
    for done in range(20, 40):
        clock.now += 1.0
        shown.candidate("fused_conv2d_add_relu", done + 1, 40, 2.0 + done, 1.5)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0] == ("21/40 left 0:19: fused_conv2d_add_relu 21/40, best 22.0 GFLOP/s, rule 1.5")
    assert lines[-1].startswith("40/40 left 0:00: ")
    assert [line.split("/")[0] for line in lines] == ["21", "26", "31", "36", "40"]


def test_the_time_left():
    """It counts this run's trials, and is not longer than the seconds that the run can take."""
    clock = Clock()
    shown = Progress(silent=True, clock=clock)
    shown.begin(300, 100, None)
    assert shown.left() == "?"
    clock.now = 30.0
    for done in range(10):
        shown.candidate("a", done, 300, 1.0, 1.0)
    assert shown.left() == "9:30"
    shown.begin(300, 110, 100.0)
    clock.now = 60.0
    assert shown.left() == "1:10"
    clock.now = 160.0
    assert shown.left() == "0:00"


@pytest.mark.parametrize("how", [False, "auto"])
def test_a_whole_run(how, tmp_path, capfd):
    """It prints a few plain lines, or none at all; the error stream stays empty."""
    records = Records(tmp_path / "r")
    gc.collect()  # else TVM may say something about what other tests have left
    capfd.readouterr()
    tune_tasks([task()], FakeMeasurer(), records, trials=12, tuner="xgb", progress=how)
    out, err = capfd.readouterr()
    assert err == ""
    if how is False:
        assert out == ""
    else:
        last, decision = out.splitlines()[-2:]
        assert last.startswith("12/12 left 0:00: matmul 12/12, best ")
        assert decision == "12/12 left 0:00: matmul: the best found meets the rule"
        assert len(out.splitlines()) < 12
