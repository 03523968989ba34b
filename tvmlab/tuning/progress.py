"""Progress of tuning: a line now and then."""

from __future__ import annotations

import time

__all__ = ["Progress"]

LINE_SECONDS = 5.0
"""A line at most this often, and at the end of a task."""


class Progress:
    """Counts trials, and prints lines unless it is silent."""

    def __init__(self, done: int, total: int, *, silent: bool) -> None:
        self.done, self.total, self.silent = done, total, silent
        self.shown = float("-inf")

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Count a candidate, and show the GFLOP/s of the best one and of the rule."""
        self.done += 1
        text = f"{task} {done}/{trials}, best {best:.1f} GFLOP/s, rule {rule:.1f}"
        self._show(text, last=done >= trials)

    def decision(self, task: str) -> None:
        """Show that the best candidate of a task is compared with the rule."""
        self._show(f"{task}: the best found meets the rule", last=True)

    def _show(self, text: str, *, last: bool) -> None:
        now = time.monotonic()
        if not self.silent and (last or now - self.shown >= LINE_SECONDS):
            self.shown = now
            print(f"{self.done}/{self.total}: {text}", flush=True)
