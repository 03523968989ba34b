"""Progress of tuning: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Literal

from ..support.wording import several

__all__ = ["Bar", "Lines", "Progress", "make_progress"]

LINE_SECONDS = 5.0
"""Where there is no terminal: a line at most this often, and at the end of a task."""


class Progress:
    """Counts trials and shows nothing; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began = clock()
        self.total = self.done = self.known = 0
        self.ends: float | None = None

    def begin(self, tasks: int, total: int, known: int, seconds: float | None = None) -> None:
        """Start with the trials of all tasks, those of earlier runs, and the time limit."""
        self.began, self.total, self.done, self.known = self.clock(), total, known, known
        self.ends = None if seconds is None else self.began + seconds

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Count a candidate, and show the GFLOP/s of the best one and of the rule."""
        self.done += 1
        text = f"{_short(task)} {done}/{trials}, best {best:.1f} GFLOP/s, rule {rule:.1f}"
        self.show(text, last=done >= trials)

    def decision(self, task: str) -> None:
        """Show that the best candidate of a task is compared with the rule."""
        self.show(f"{_short(task)}: the best found meets the rule", last=True)

    def show(self, text: str, *, last: bool) -> None:
        """Show a text, which can be left out if it is not the last of a task."""

    def close(self) -> None:
        """End the display."""

    def left(self) -> str:
        """Estimate the time left by the trials of this run and the time limit."""
        now, fresh, rest = self.clock(), self.done - self.known, self.total - self.done
        guesses = []
        if fresh > 0:
            guesses.append((now - self.began) / fresh * max(0, rest))
        if self.ends is not None:
            guesses.append(max(0.0, self.ends - now))
        if not guesses:
            return "?"
        minutes, seconds = divmod(round(min(guesses)), 60)
        return f"{minutes}:{seconds:02d}"


def _short(task: str) -> str:
    return task if len(task) <= 32 else task[:29] + "..."


class Lines(Progress):
    """Prints a line now and then."""

    shown = float("-inf")

    def show(self, text: str, *, last: bool) -> None:
        """Print a line if the previous one is some seconds old."""
        if last or self.clock() - self.shown >= LINE_SECONDS:
            self.shown = self.clock()
            print(f"{self.done}/{self.total} left {self.left()}: {text}", flush=True)


class Bar(Progress):
    """Draws a bar by `tqdm.tqdm`."""

    def __init__(self, bar: Callable[..., Any]) -> None:
        super().__init__()
        self.make = bar
        self.bar: Any = None

    def begin(self, tasks: int, total: int, known: int, seconds: float | None = None) -> None:
        """Draw the bar."""
        super().begin(tasks, total, known, seconds)
        # tqdm's own estimate knows neither of earlier runs nor of the seconds.
        style = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        self.bar = self.make(
            total=total, initial=known, desc=several(tasks, "task"), bar_format=style
        )

    def show(self, text: str, *, last: bool) -> None:
        """Move the bar."""
        self.bar.set_postfix_str(f"left {self.left()}: {text}", refresh=last)
        self.bar.update(self.done - self.bar.n)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self.bar is not None:
            self.bar.close()


def make_progress(how: bool | Literal["auto"]) -> Progress:
    """Choose a display: none for False, a bar on a terminal where tqdm is installed, or lines."""
    if how is False:
        return Progress()
    if sys.stderr.isatty() and sys.stdout.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            return Lines()
        return Bar(tqdm)
    return Lines()
