"""What is shown while tuning: a bar, lines, or nothing."""

import contextlib
import fcntl
import gc
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning.progress import Lines, Progress
from tvmlab.tuning.session import tune_tasks


class Clock:
    """Seconds that go by when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def trials(shown: Progress, clock: Clock, count: int = 40, each: float = 1.0) -> None:
    """Half of the trials of an earlier run, and then the rest, one a second."""
    shown.begin(1, count, count // 2)
    for done in range(count // 2, count):
        clock.now += each
        shown.candidate("fused_conv2d_add_relu", done + 1, count, 2.0 + done, 1.5)
    shown.close()


def test_lines_are_few_and_whole(capsys):
    """A line every five seconds and at the end, with the best, the rule and the time left."""
    clock = Clock()
    trials(Lines(clock), clock)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0] == ("21/40 left 0:19: fused_conv2d_add_relu 21/40, best 22.0 GFLOP/s, rule 1.5")
    assert lines[-1].startswith("40/40 left 0:00: ")
    assert [line.split("/")[0] for line in lines] == ["21", "26", "31", "36", "40"]


def test_the_time_left():
    """It counts this run's trials, and where the run may take some seconds it is no longer."""
    clock = Clock()
    shown = Progress(clock)
    shown.begin(1, 300, 100)
    assert shown.left() == "?"
    clock.now = 30.0
    for done in range(10):
        shown.candidate("a", done, 300, 1.0, 1.0)
    assert shown.left() == "9:30"
    shown.begin(1, 300, 110, 100.0)
    clock.now = 60.0
    assert shown.left() == "1:10"
    clock.now = 160.0
    assert shown.left() == "0:00"


@pytest.mark.parametrize("how", [False, "auto"])
def test_where_there_is_no_terminal(how, tmp_path, capfd):
    """A whole run prints a few plain lines, or none at all; the error stream stays empty."""
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


NOTEBOOK = """
import sys
sys.path.insert(0, {tests!r})
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning.session import tune_tasks
report = tune_tasks([task()], FakeMeasurer(), Records({path!r}), trials=12, tuner="ga",
                    progress={how!r})
"""


def test_a_real_terminal(tmp_path):
    """On a terminal, a bar is drawn that ends full."""
    code = NOTEBOOK.format(
        tests=str(Path(__file__).parents[2]), path=str(tmp_path / "r"), how="auto"
    )
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while more := terminal.read(4096):  # ends with an error when the child has closed it
            shown += more
    text = shown.decode()
    assert child.wait(timeout=300) == 0, text
    assert "1 task: 100%" in text
    assert "best " in text
