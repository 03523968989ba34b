"""The output of tuning: lines while it runs, and a report at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..support.wording import several, table

LINE_SECONDS = 5.0  # a line at most this often, and at the end of a task


@dataclass
class Progress:
    """Count trials, and print progress lines unless it is silent."""

    total: int
    silent: bool
    done: int = 0
    shown: float = float("-inf")

    def show(self, text: str, *, last: bool) -> None:
        """Print a line if it is the last of its kind, or if the previous line is old enough."""
        now = time.monotonic()
        if not self.silent and (last or now - self.shown >= LINE_SECONDS):
            self.shown = now
            print(f"{self.done}/{self.total}: {text}", flush=True)


@dataclass(frozen=True)
class TaskReport:
    """The result of tuning one task.

    Attributes
    ----------
    name : str
        The task's name.
    calls, flops : int, float
        How often the network calls it, and operations per call.
    rule, tuned : float
        Seconds per call without tuning, and of the schedule that `tvmlab.compile` uses now. `rule`
        is infinite if the schedule without tuning failed.
    layout, ended : str
        The chosen layout, empty for the rule's own; why the search ended.
    errors, times : tuple of str, tuple of float
        Why candidates failed, and seconds per call of all candidates, infinity for a failure.
    decided : bool
        Whether there is a verdict. Without a verdict, compilation does not change.
    """

    name: str
    calls: int
    flops: float
    rule: float
    tuned: float
    layout: str
    ended: str
    errors: tuple[str, ...]
    times: tuple[float, ...]
    decided: bool = True

    @property
    def trials(self) -> int:
        """Candidates measured, in this run and earlier ones."""
        return len(self.times)

    @property
    def ratio(self) -> float:
        """The tuned time over the rule's time."""
        return self.tuned / self.rule if 0 < self.rule < float("inf") else 1.0

    @property
    def gflops(self) -> float:
        """Billions of operations per second after tuning."""
        return self.flops / self.tuned / 1e9 if self.tuned > 0 else 0.0


@dataclass(frozen=True, repr=False)
class Report:
    """The result of tuning a module.

    Attributes
    ----------
    tasks : tuple of TaskReport
        Sorted by the time that they take.
    seconds, measured : float, int
        The duration of this run, and the number of candidates that it measured.
    """

    tasks: tuple[TaskReport, ...]
    seconds: float
    measured: int

    @property
    def before(self) -> float:
        """The time of all calls without tuning, in seconds, for tasks where it is known."""
        return sum(task.calls * task.rule for task in self.tasks if task.rule < float("inf"))

    @property
    def after(self) -> float:
        """The time of the same tasks' calls after tuning, in seconds."""
        return sum(task.calls * task.tuned for task in self.tasks if task.rule < float("inf"))

    def __repr__(self) -> str:
        """Format a table, with times in milliseconds."""
        head = "task", "calls", "rule ms", "tuned ms", "ratio", "GFLOP/s", "trials", "errors"
        cells = [
            (
                task.name if len(task.name) <= 40 else task.name[:37] + "...",
                task.calls,
                _milliseconds(task.rule),
                _milliseconds(task.tuned),
                f"{task.ratio:.2f}" if task.decided else "-",
                f"{task.gflops:.1f}",
                task.trials,
                len(task.errors),
                task.layout,
            )
            for task in self.tasks
        ]
        ratio = self.after / self.before if self.before > 0 else 1.0
        rows = [
            table((*head, "layout"), cells, left=(0, 8)),
            f"all calls: {self.before * 1e3:.3f} ms before, {self.after * 1e3:.3f} ms after "
            f"({ratio:.2f}); {several(self.measured, 'candidate')} measured in "
            f"{self.seconds:.0f} s",
        ]
        if not all(task.decided for task in self.tasks):
            rows.append("-: nothing was decided yet, and the rule stays; tune again to go on")
        return "\n".join(rows)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.4f}" if seconds < float("inf") else "-"
