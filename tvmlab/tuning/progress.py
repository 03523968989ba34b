"""Progress of tuning: bars, lines, or a line in a notebook."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Literal

from ..support.wording import several

__all__ = ["Bars", "Lines", "NotebookLine", "Progress", "make_progress"]

LINE_SECONDS = 5.0
"""Where there is no terminal: a line at most this often, and at the end of a task."""
NOTEBOOK_SECONDS = 0.5


class Progress:
    """Shows nothing; what the others are made from.

    Parameters
    ----------
    clock : callable
        Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began = clock()
        self.total = 0
        self.done = 0
        self.known = 0
        self.ends: float | None = None

    def begin(self, tasks: int, total: int, seconds: float | None = None) -> None:
        """Start.

        Parameters
        ----------
        tasks : int
            How many there are.
        total : int
            Trials of all of them.
        seconds : float, optional
            After which the run ends, whatever is left of the trials.
        """
        self.began, self.total = self.clock(), total
        self.ends = None if seconds is None else self.began + seconds

    def advance(self, trials: int) -> None:
        """Count trials that earlier runs did."""
        self.done += trials
        self.known += trials

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Take note of a candidate.

        Parameters
        ----------
        task : str
            Whose it is.
        done, trials : int
            Trials of the task, those made and all.
        best, rule : float
            Billions of operations a second of the best known and of the rule.
        """
        self.done += 1

    def decision(self, task: str) -> None:
        """Take note that what was found for a task begins to meet the rule."""

    def close(self) -> None:
        """End the display."""

    def left(self) -> str:
        """Say how long the rest will take, going by what this run has measured so far."""
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


def _text(task: str, done: int, trials: int, best: float, rule: float) -> str:
    return f"{_short(task)} {done}/{trials}, best {best:.1f} GFLOP/s, rule {rule:.1f}"


def _meeting(task: str) -> str:
    return f"{_short(task)}: the best found meets the rule"


class Lines(Progress):
    """Prints a line now and then.

    Parameters
    ----------
    stream : file
        Where to.
    clock : callable
        Gives seconds.
    """

    def __init__(
        self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self.stream = stream if stream is not None else sys.stdout
        self.last = float("-inf")

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Print a line if the last is some seconds old, or the task has all its trials."""
        super().candidate(task, done, trials, best, rule)
        if self.clock() - self.last < LINE_SECONDS and done < trials:
            return
        self._print(_text(task, done, trials, best, rule))

    def decision(self, task: str) -> None:
        """Print a line: some seconds go by without a candidate."""
        self._print(_meeting(task))

    def _print(self, text: str) -> None:
        self.last = self.clock()
        print(f"{self.done}/{self.total} left {self.left()}: {text}", file=self.stream, flush=True)


class Bars(Progress):
    """Two bars of tqdm's: the task's, and one over all.

    Parameters
    ----------
    bar : callable
        ``tqdm.tqdm``.
    """

    def __init__(self, bar: Callable[..., Any]) -> None:
        super().__init__()
        self.bar = bar
        self.all: Any = None
        self.one: Any = None
        self.task = ""

    def begin(self, tasks: int, total: int, seconds: float | None = None) -> None:
        """Draw the bar over all."""
        super().begin(tasks, total, seconds)
        # What is left is said by us: tqdm knows neither of earlier runs nor of the seconds.
        self.all = self.bar(
            total=total,
            desc=several(tasks, "task"),
            unit="trial",
            position=1,
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]",
        )

    def advance(self, trials: int) -> None:
        """Fill the bar with what earlier runs did."""
        super().advance(trials)
        self.all.initial = trials
        self.all.n = trials
        self.all.refresh()

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Move both bars."""
        super().candidate(task, done, trials, best, rule)
        fresh = task != self.task
        if fresh:
            if self.one is not None:
                self.one.close()
            self.task = task
            self.one = self.bar(
                total=trials,
                initial=done - 1,
                desc=_short(task),
                unit="trial",
                position=0,
                leave=False,
            )
        # tqdm draws at most ten times a second: a short task's bar would never say more.
        self.one.set_postfix_str(f"best {best:.1f} GFLOP/s, rule {rule:.1f}", refresh=fresh)
        self.one.update(1)
        self.all.set_postfix_str(f"left {self.left()}", refresh=False)
        self.all.update(1)

    def decision(self, task: str) -> None:
        """Say so behind the bar over all."""
        self.all.set_postfix_str(_meeting(task))

    def close(self) -> None:
        """Leave the bar over all where it stands, without what it is at."""
        if self.all is not None:
            self.all.set_postfix_str("", refresh=False)
        for bar in (self.one, self.all):
            if bar is not None:
                bar.close()


class NotebookLine(Progress):
    """One output of a notebook's cell that is rewritten in place: no widgets.

    Parameters
    ----------
    show : callable
        ``IPython.display.display``.
    clock : callable
        Gives seconds.
    """

    def __init__(
        self, show: Callable[..., Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self.show = show
        self.handle: Any = None
        self.last = float("-inf")
        self.text = ""

    def candidate(self, task: str, done: int, trials: int, best: float, rule: float) -> None:
        """Rewrite the output, twice a second at most."""
        super().candidate(task, done, trials, best, rule)
        self.text = _text(task, done, trials, best, rule)
        if self.clock() - self.last >= NOTEBOOK_SECONDS:
            self.last = self.clock()
            self._draw(self.text)

    def decision(self, task: str) -> None:
        """Rewrite the output."""
        self._draw(_meeting(task))

    def close(self) -> None:
        """Rewrite it a last time: what stays is the last candidate."""
        if self.text:
            self._draw(self.text)

    def _draw(self, text: str) -> None:
        view = _View(self.done, self.total, self.left(), text)
        if self.handle is None:
            self.handle = self.show(view, display_id=True)
        else:
            self.handle.update(view)


class _View:
    """A bar as HTML, and as text where HTML is not shown."""

    def __init__(self, done: int, total: int, left: str, text: str) -> None:
        self.done, self.total, self.left, self.text = done, total, left, text

    def __repr__(self) -> str:
        return f"{self.done}/{several(self.total, 'trial')}, left {self.left}: {self.text}"

    def _repr_html_(self) -> str:
        return (
            f'<progress value="{self.done}" max="{self.total}" aria-label="trials measured">'
            f"</progress> <code>{html.escape(repr(self))}</code>"
        )


def _in_notebook() -> bool:
    """Tell whether a notebook's kernel runs this."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def make_progress(how: bool | Literal["auto"]) -> Progress:
    """Choose a display.

    Parameters
    ----------
    how : bool or "auto"
        False for none. Else a line that is rewritten in a notebook, bars where the standard error
        is a terminal and tqdm is installed, and lines on the standard output elsewhere.

    Returns
    -------
    Progress
    """
    if how is False:
        return Progress()
    if _in_notebook():
        from IPython.display import display

        return NotebookLine(display)
    if sys.stderr.isatty() and sys.stdout.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            return Lines()
        return Bars(tqdm)
    return Lines()
