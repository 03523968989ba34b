"""What is shown while tuning: bars, lines, one output in a notebook, or nothing."""

import contextlib
import fcntl
import gc
import io
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from tqdm import tqdm

from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning import progress
from tvmlab.tuning.api import tune_tasks
from tvmlab.tuning.progress import Bars, Lines, NotebookLine, Progress, make_progress


class Clock:
    """Seconds that go by when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def trials(shown: Progress, clock: Clock, count: int = 40, each: float = 1.0) -> None:
    """Half of the trials of an earlier run, and then the rest, one a second."""
    shown.begin(1, count)
    shown.advance(count // 2)
    for done in range(count // 2, count):
        clock.now += each
        shown.candidate("fused_conv2d_add_relu", done + 1, count, 2.0 + done, 1.5)
    shown.close()


def test_lines_are_few_and_whole():
    """A line every five seconds and at the end, with the best, the rule and the time left."""
    stream, clock = io.StringIO(), Clock()
    trials(Lines(stream, clock), clock)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0] == ("21/40 left 0:19: fused_conv2d_add_relu 21/40, best 22.0 GFLOP/s, rule 1.5")
    assert lines[-1].startswith("40/40 left 0:00: ")
    assert [line.split("/")[0] for line in lines] == ["21", "26", "31", "36", "40"]


def test_the_time_left():
    """It counts this run's trials, and where the run may take some seconds it is no longer."""
    clock = Clock()
    shown = Progress(clock)
    shown.begin(1, 300)
    shown.advance(100)
    assert shown.left() == "?"
    clock.now = 30.0
    for done in range(10):
        shown.candidate("a", done, 300, 1.0, 1.0)
    assert shown.left() == "9:30"
    shown.begin(1, 300, 100.0)
    clock.now = 60.0
    assert shown.left() == "1:10"
    clock.now = 160.0
    assert shown.left() == "0:00"


def test_bars_end_full():
    """Two bars of tqdm's: the one over all starts where the earlier run was and ends full."""
    stream, clock = io.StringIO(), Clock()

    def bar(**how):
        return tqdm(file=stream, ncols=100, mininterval=0, **how)

    trials(Bars(bar), clock)
    text = stream.getvalue()
    assert "1 task:  50%" in text
    assert "1 task: 100%" in text
    assert "left 0:00]" in text
    assert "40/40" in text
    assert "best 41.0 GFLOP/s, rule 1.5" in text


def test_a_notebook_has_one_output():
    """It is rewritten, at most twice a second, and the last word is the last trial's."""
    clock = Clock()
    views, updates = [], []

    class Handle:
        def update(self, view) -> None:
            updates.append(view)

    def display(view, display_id):
        assert display_id is True
        views.append(view)
        return Handle()

    trials(NotebookLine(display, clock), clock, each=0.1)
    assert len(views) == 1
    assert len(updates) == 4
    assert repr(updates[-1]) == (
        "40/40 trials, left 0:00: fused_conv2d_add_relu 40/40, best 41.0 GFLOP/s, rule 1.5"
    )
    drawn = updates[-1]._repr_html_()
    assert drawn.startswith('<progress value="40" max="40" aria-label="trials measured">')
    shown = NotebookLine(lambda view, display_id: views.append(view))
    shown.begin(1, 1)
    shown.candidate("<b>&", 1, 1, 1.0, 1.0)
    assert "&lt;b&gt;&amp;" in views[-1]._repr_html_()
    assert "<b>" not in views[-1]._repr_html_()


def test_which_is_chosen(monkeypatch):
    """Nothing when told so; lines where no terminal is; bars on one; a notebook's own in one."""
    assert type(make_progress(False)) is Progress
    assert type(make_progress("auto")) is Lines
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        patch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert type(make_progress("auto")) is Bars
        patch.setitem(sys.modules, "tqdm", None)
        assert type(make_progress(True)) is Lines
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    assert type(make_progress("auto")) is NotebookLine


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
from tvmlab.tuning.api import tune_tasks
report = tune_tasks([task()], FakeMeasurer(), Records({path!r}), trials=12, tuner="ga",
                    progress={how!r})
"""


def test_a_real_terminal(tmp_path):
    """On a terminal, bars are drawn on it and the run ends with the bar over all full."""
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
