"""What tuning shows: lines while it runs, and a report at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..support.wording import several, table

LINE_SECONDS = 5.0  # a line at most this often, and at the end of a task


@dataclass
class Progress:
    """Counts trials, and prints lines unless it is silent."""

    total: int
    silent: bool
    done: int = 0
    shown: float = float("-inf")

    def show(self, text: str, *, last: bool) -> None:
        """Print a line if it is the last of its kind, or if the one before was long ago."""
        now = time.monotonic()
        if not self.silent and (last or now - self.shown >= LINE_SECONDS):
            self.shown = now
            print(f"{self.done}/{self.total}: {text}", flush=True)


@dataclass(frozen=True)
class TaskReport:
    """What tuning brought to one task.

    Attributes
    ----------
    name : str
        The task's name.
    calls, flops : int, float
        How often the network calls it, and operations of one call.
    rule, tuned : float
        Seconds per call without tuning, and of what `tvmlab.compile` takes from now on. `rule` is
        infinite where what is compiled without tuning did not run.
    layout, ended : str
        The layout that was chosen, empty for the rule's own; why the search ended.
    errors, times : tuple of str, tuple of float
        Why candidates failed, and seconds per call of all, infinity for a failure.
    decided : bool
        Whether there is a verdict. Without one, compilation does what it did before.
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
        """Candidates measured, in this run and before."""
        return len(self.times)

    @property
    def ratio(self) -> float:
        """The tuned time over the rule's."""
        return self.tuned / self.rule if 0 < self.rule < float("inf") else 1.0

    @property
    def gflops(self) -> float:
        """Billions of operations per second after tuning."""
        return self.flops / self.tuned / 1e9 if self.tuned > 0 else 0.0


@dataclass(frozen=True, repr=False)
class Report:
    """What tuning brought to a module.

    Attributes
    ----------
    tasks : tuple of TaskReport
        In the order of the time that they take.
    seconds, measured : float, int
        How long this run took, and the candidates that it measured.
    """

    tasks: tuple[TaskReport, ...]
    seconds: float
    measured: int

    @property
    def before(self) -> float:
        """Seconds that all calls take without tuning, added up, of tasks where that is known."""
        return sum(task.calls * task.rule for task in self.tasks if task.rule < float("inf"))

    @property
    def after(self) -> float:
        """Seconds that the calls of the same tasks take after tuning, added up."""
        return sum(task.calls * task.tuned for task in self.tasks if task.rule < float("inf"))

    def __repr__(self) -> str:
        """Draw a table, times in milliseconds."""
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
