"""Progress of tuning: a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Progress"]

LINE_SECONDS = 5.0
"""A line at most this often, and at the end of a task."""


class Progress:
    """Counts trials, and prints lines unless it is silent; `clock` returns seconds."""

    def __init__(self, *, silent: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.silent, self.clock = silent, clock
        self.shown = float("-inf")
        self.begin(0, 0, None)

    def begin(self, total: int, known: int, seconds: float | None) -> None:
        """Start with the trials of all tasks, those of earlier runs, and the time limit."""
        self.began, self.total, self.done, self.known = self.clock(), total, known, known
        self.ends = float("inf") if seconds is None else self.began + seconds

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Count a candidate, and show the GFLOP/s of the best one and of the rule."""
        self.done += 1
        text = f"{done}/{trials}, best {best:.1f} GFLOP/s, rule {rule:.1f}"
        self._show(task, text, last=done >= trials)

    def decision(self, task: str) -> None:
        """Show that the best candidate of a task is compared with the rule."""
        self._show(task, ": the best found meets the rule", last=True)

    def _show(self, task: str, text: str, *, last: bool) -> None:
        if self.silent or not (last or self.clock() - self.shown >= LINE_SECONDS):
            return
        self.shown = self.clock()
        name = task if len(task) <= 32 else task[:29] + "..."
        between = "" if text.startswith(":") else " "
        print(f"{self.done}/{self.total} left {self.left()}: {name}{between}{text}", flush=True)

    def left(self) -> str:
        """Estimate the time left by the trials of this run and the time limit."""
        now, fresh = self.clock(), self.done - self.known
        each = (now - self.began) / fresh if fresh else float("inf")
        seconds = min(each * max(1e-9, self.total - self.done), max(0.0, self.ends - now))
        if seconds == float("inf"):
            return "?"
        return "{}:{:02d}".format(*divmod(round(seconds), 60))
