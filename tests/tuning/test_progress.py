"""What is shown while tuning: bars, lines, one output in a notebook, or nothing."""

import contextlib
import fcntl
import gc
import io
import os
import re
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


def test_time_left_counts_this_runs_trials():
    """What an earlier run did says nothing about how long a trial takes."""
    clock = Clock()
    shown = Progress(clock)
    shown.begin(1, 300)
    shown.advance(100)
    assert shown.left() == "?"
    clock.now = 30.0
    for done in range(10):
        shown.candidate("a", done, 300, 1.0, 1.0)
    assert shown.left() == "9:30"


def test_time_left_ends_with_the_seconds():
    """Where the run may take some seconds, it is not said to take longer."""
    clock = Clock()
    shown = Progress(clock)
    shown.begin(1, 300, 100.0)
    assert shown.left() == "1:40"
    clock.now = 10.0
    shown.candidate("a", 1, 300, 1.0, 1.0)
    assert shown.left() == "1:30"
    for done in range(2, 291):
        shown.candidate("a", done, 300, 1.0, 1.0)
    assert shown.left() == "0:00"  # ten trials, of 1/29 s each
    clock.now = 130.0
    assert shown.left() == "0:00"


def test_decisions_are_shown():
    """They take seconds without a candidate: each has its line, whenever the last one was."""
    stream, clock = io.StringIO(), Clock()
    shown = Lines(stream, clock)
    shown.begin(2, 2)
    shown.candidate("a", 1, 2, 2.0, 1.0)
    shown.decision("a")
    shown.decision("fused_conv2d_add_relu_conv2d_add_relu")
    assert stream.getvalue().splitlines()[1:] == [
        "1/2 left 0:00: a: the best found meets the rule",
        "1/2 left 0:00: fused_conv2d_add_relu_conv2d_...: the best found meets the rule",
    ]
    stream = io.StringIO()
    bars = Bars(lambda **how: tqdm(file=stream, ncols=100, mininterval=0, **how))
    bars.begin(1, 2)
    bars.candidate("a", 1, 2, 2.0, 1.0)
    bars.decision("a")
    bars.close()
    assert "1/2 [00:00, a: the best found meets the rule]" in stream.getvalue()
    views = []
    line = NotebookLine(lambda view, display_id: views.append(view), clock)
    line.begin(1, 1)
    line.decision("a")
    assert repr(views[0]) == "0/1 trial, left ?: a: the best found meets the rule"


def test_the_last_word_in_a_notebook_is_a_candidate():
    views, updates = [], []

    class Handle:
        def update(self, view) -> None:
            updates.append(repr(view))

    shown = NotebookLine(lambda view, display_id: views.append(repr(view)) or Handle(), Clock())
    shown.begin(1, 1)
    shown.candidate("a", 1, 1, 2.0, 1.0)
    shown.decision("a")
    shown.close()
    assert updates == ["1/1 trial, left 0:00: a: the best found meets the rule", *views]


def test_a_run_shows_its_decisions(tmp_path):
    """Once for each duel that is really fought, and with the seconds that are left."""

    class Noted(Progress):
        def __init__(self) -> None:
            super().__init__()
            self.tasks: list[str] = []

        def decision(self, task: str) -> None:
            self.tasks.append(task)

    tasks = [task(8, "a"), task(16, "b")]
    for wanted in (["a", "b"], []):
        noted = Noted()
        how = {"trials": 6, "tuner": "random", "seconds": 600.0}
        tune_tasks(tasks, FakeMeasurer(), Records(tmp_path / "r"), progress=noted, **how)
        assert sorted(noted.tasks) == wanted
        assert noted.ends is not None
        assert 0 < noted.ends - noted.began <= 600


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


def test_a_bar_for_each_task():
    """When another task's turn comes, its own bar replaces the last one's."""
    stream = io.StringIO()
    shown = Bars(lambda **how: tqdm(file=stream, ncols=100, mininterval=0, **how))
    shown.begin(2, 4)
    for name in ("first", "second", "first"):
        shown.candidate(name, 1, 2, 1.0, 1.0)
    shown.close()
    order = re.findall(r"(first|second): ", stream.getvalue())
    assert [name for place, name in enumerate(order) if place == 0 or name != order[place - 1]] == [
        "first",
        "second",
        "first",
    ]


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
    assert "widget" not in drawn


def test_names_are_escaped_in_html():
    """A function's name is text, never markup."""
    views = []
    shown = NotebookLine(lambda view, display_id: views.append(view))
    shown.begin(1, 1)
    shown.candidate("<b>&", 1, 1, 1.0, 1.0)
    assert "&lt;b&gt;&amp;" in views[0]._repr_html_()
    assert "<b>" not in views[0]._repr_html_()


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
        assert out.splitlines()[-2].startswith("12/12 left 0:00: matmul 12/12, best ")
        assert out.splitlines()[-1] == "12/12 left 0:00: matmul: the best found meets the rule"
        assert len(out.splitlines()) < 12
        assert "\r" not in out
        assert "\x1b" not in out


NOTEBOOK = """
import sys
sys.path.insert(0, {tests!r})
from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning.api import tune_tasks
report = tune_tasks([task()], FakeMeasurer(), Records({path!r}), trials=12, tuner="ga",
                    progress={how!r})
"""


def test_a_real_kernel(tmp_path):
    """A Jupyter kernel shows one output and updates it; with progress=False it shows nothing."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        seen = []
        for how in (False, True):
            code = NOTEBOOK.format(
                tests=str(Path(__file__).parents[2]), path=str(tmp_path / str(how)), how=how
            )
            kinds: list[str] = []
            reply = client.execute_interactive(
                code,
                timeout=120,
                output_hook=lambda message, kinds=kinds: kinds.append(message["msg_type"]),
            )
            assert reply["content"]["status"] == "ok", reply["content"]
            seen.append([kind for kind in kinds if kind not in ("status", "execute_input")])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert seen[0] == []
    assert seen[1][0] == "display_data"
    assert set(seen[1][1:]) == {"update_display_data"}


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
