"""One task: its rules measured, and its space searched batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import s_tir

from ...records.records import Records
from ...records.result import Result, Verdict, after, now, target_data
from ...records.result import mismatch as fits
from ...records.traces import as_data
from ...support.host import physical_cores, processor_name
from ...support.wording import several
from ..measure import Measurer, Outcome, how
from ..task import Task, Variant
from .answers import same_answer, tolerances
from .driver import Driver
from .known import Known, Tried, measured, whole
from .tuners import Tuner

__all__ = ["TaskSearch", "measure_rules"]

WRONG = "It gives another answer than the rule's schedule."
BATCH = 16
"""Candidates a batch: the model may be trained anew after each."""
SMALL = 64
"""Below this many trials batches are half as large, so that the model sees several."""
HOPELESS = 24
"""Candidates that may fail before a task without any that ran is given up."""


class TaskSearch:
    """The search of one task, a batch at a time; what was recorded before counts.

    Parameters
    ----------
    task : Task
        What is tuned.
    measurer : Measurer
        Who builds and measures.
    records : Records
        Where each outcome goes as it is known.
    tuner : Tuner
        From `find_tuner`.
    trials : int
        Candidates to measure at most, the rules' among them and those in the records.
    early_stopping : int or None
        Trials without a better one after which the search ends.
    seed : int
        Where random decisions start.
    watch : callable, optional
        Called with this object after each candidate.
    """

    def __init__(
        self,
        task: Task,
        measurer: Measurer,
        records: Records,
        *,
        tuner: Tuner,
        trials: int,
        early_stopping: int | None = None,
        seed: int = 0,
        watch: Callable[[TaskSearch], None] | None = None,
    ) -> None:
        self.task, self.measurer, self.records = task, measurer, records
        self.tuner, self.trials, self.early_stopping = tuner, trials, early_stopping
        self.seed, self.watch = seed, watch or (lambda search: None)
        self._how = how(measurer.options)
        self.times: list[float] = []
        """The time of each candidate in the order of their trials; infinity where one failed."""
        self.predicted: list[float | None] = []
        """What the model said of each before it was measured; None where it said nothing."""
        self.errors: list[str] = []
        self.ended = ""
        """Why the search is over; empty while it is not."""
        self.batches: list[float] = []
        """The fastest known after each batch, in seconds a call."""
        self._idle = 0
        self._undecided = False
        # A layout can only be taken where the graph can be told of it, by the operator.
        variants = task.variants if task.operator else task.variants[:1]
        self.known = [self._recall(variant) for variant in variants]
        self.chosen = 0
        self._driver: Driver | None = None

    # What was measured.

    @property
    def rule_time(self) -> float:
        """What is taken without tuning, in seconds a call; infinity where it failed."""
        return self.known[0].rule_time

    @property
    def best_time(self) -> float:
        """The fastest known, in seconds a call; infinity where nothing ran."""
        return min(self.times, default=float("inf"))

    @property
    def left(self) -> int:
        """Trials that are left."""
        return max(0, self.trials - len(self.times))

    @property
    def current(self) -> Known:
        """The variant that is searched."""
        return self.known[self.chosen]

    def gflops(self, time: float) -> float:
        """Say a time as billions of operations a second."""
        return 0.0 if time == float("inf") else self.task.flops / time / 1e9

    def _recall(self, variant: Variant) -> Known:
        rule = variant.rule
        if rule is None:  # what is compiled then is the function as it is
            rule = s_tir.Schedule(variant.module, debug_mask="none")
        workload = self.records.workload(variant.module, self.task.name)
        known = Known(variant, workload, rule, tolerances(variant.module))
        for result in self.records.results(workload):
            # What failed is tried again: it may have been the machine's fault, or a limit's.
            if result.error or result.how != self._how or fits(result, self.task.target):
                continue
            if self.measurer.processor not in ("", result.cpu):
                continue  # a file that was merged: times of another machine do not compare
            outcome = Outcome(tuple(result.times), "", tuple(result.answer), result.cpu)
            if result.origin != "rule":
                self._remember(known, Tried((variant.module, result), "search", outcome))
            elif known.measured_rule is None and result.trace == as_data(rule.trace):
                self._remember(known, Tried(rule, "rule", outcome))
            else:
                continue
            known.last = max(known.last, result.date)
        return known

    def _remember(self, known: Known, tried: Tried, predicted: float | None = None) -> None:
        if tried.origin == "rule":
            known.measured_rule = tried
        else:
            known.tried.append(tried)
            self._idle = 0 if tried.time < self.best_time else self._idle + 1
        self.times.append(tried.time)
        self.predicted.append(predicted)
        if tried.outcome.error:
            self.errors.append(tried.outcome.error)

    # What is measured next.

    def begin(self) -> None:
        """Choose the variant that promises most, once the rules are measured."""
        self.chosen = self.known.index(min(self.known, key=self.promise))
        self.batches.append(self.best_time)

    def promise(self, known: Known) -> float:
        """Say what is known of a variant: the fastest of it, in seconds a call."""
        times = [known.rule_time, *(one.time for one in known.tried)]
        found = self.records.best(known.workload, self.task.target)
        if isinstance(found, Verdict):
            times.append(found.ratio * self.rule_time)
        return min(times)

    def advised(self, known: Known, others: Sequence[Tried]) -> list[Tried]:
        """List what compilation takes so far of a variant, where it is none of some others.

        It was decided on in another run, or was imported.
        """
        rule = known.measured_rule
        if rule is None or not rule.outcome.times:
            return []
        found = self.records.best(known.workload, self.task.target)
        if found is None or found.trace is None:
            return []
        # How fast it is is to be seen; what it computes is what the rule does.
        tried = Tried((known.variant.module, found), "search", rule.outcome)
        new = tried.schedule is not None and all(tried.trace != one.trace for one in others)
        return [tried] if new else []

    def choose(self, layout: str) -> None:
        """Search the variant of this layout, and no longer the fastest one's."""
        layouts = [known.variant.layout for known in self.known]
        self.chosen = layouts.index(layout)

    def step(self, limit: int | None = None) -> int:
        """Propose a batch, measure it, learn from it.

        Parameters
        ----------
        limit : int, optional
            Candidates at most.

        Returns
        -------
        int
            How many were measured; 0 where the search is over, see `ended`.
        """
        if not self._goes_on():
            return 0
        if self._driver is None:
            size = BATCH if self.trials >= SMALL else BATCH // 2
            self._driver = Driver(self.current, self.task.target, self.tuner, self.seed, size)
        most = self.left if limit is None else min(limit, self.left)
        batch = self._driver.propose(most)
        if not batch:
            self.ended = self._driver.trouble or "no candidates are left in the space"
            return 0
        said = self._driver.predict(batch)
        told = []
        schedules = [candidate.sch for candidate in batch]
        for place, outcome in measured(self.measurer, schedules):
            tried = Tried(batch[place].sch, "search", self._judge(self.current, outcome))
            self.take(self.current, tried, said[place])
            told.append((batch[place], tried))
        self._driver.learn(told)
        self.batches.append(self.best_time)
        self._goes_on()
        return len(batch)

    def take(self, known: Known, tried: Tried, predicted: float | None = None) -> None:
        """Record a candidate's outcome, and count it."""
        assert tried.schedule is not None
        result = Result(
            workload=known.workload,
            task=self.task.name,
            operator=self.task.operator,
            layout=known.variant.layout,
            origin=tried.origin,
            trace=as_data(tried.schedule.trace),
            times=tuple(map(float, tried.outcome.times)),
            error=tried.outcome.error,
            how=self._how,
            answer=tuple(map(float, tried.outcome.answer)),
            tuner=self.tuner.name,
            seed=self.seed,
            **self._where(tried.outcome.cpu),
        )
        self.records.append(result)
        known.last, self._undecided = result.date, True
        self._remember(known, tried, predicted)
        self.watch(self)

    def _where(self, cpu: str) -> dict[str, Any]:
        """Say where something was measured, in the fields of a record."""
        target = self.task.target
        threads = int(target.attrs.get("num-cores", physical_cores()))
        return {"target": target_data(target), "threads": threads, "cpu": cpu or processor_name()}

    def verdict(self) -> Verdict | None:
        """Give what was decided in the records since the last candidate was measured."""
        if self._undecided:
            return None
        found = self.older()
        last = max(known.last for known in self.known)
        return found if found is not None and found.date >= last else None

    def older(self) -> Verdict | None:
        """Give what was decided whenever: what compilation takes until there is another word."""
        return self.records.verdict(self.known[0].workload, self.task.target)

    def judge(self, **fields: Any) -> Verdict:
        """Record what was decided about the task."""
        own = self.known[0]
        older = self.older()
        # The last word has the last date, whatever clocks say.
        dates = [known.last for known in self.known] + [older.date if older else ""]
        verdict = Verdict(
            function=own.workload,
            task=self.task.name,
            operator=self.task.operator,
            date=max(now(), *(after(date) for date in dates if date)),
            **fields,
            **self._where(own.measured_rule.outcome.cpu if own.measured_rule else ""),
        )
        self.records.append(verdict)
        self._undecided = False
        return verdict

    def _goes_on(self) -> bool:
        if self.ended:
            return False
        if self.left == 0:
            self.ended = "all trials are done"
        elif self.early_stopping is not None and self._idle >= self.early_stopping:
            self.ended = f"nothing better in {several(self._idle, 'trial')}"
        elif self.hopeless(HOPELESS):
            self.ended = "no candidate ran"
        return not self.ended

    def hopeless(self, least: int) -> bool:
        """Tell whether as many candidates were tried as `least`, and all of them failed."""
        return len(self.current.tried) >= least and not self.current.found()

    def _judge(self, known: Known, outcome: Outcome) -> Outcome:
        """Turn down a candidate that computes something else than its rule."""
        outcome = whole(outcome)
        if outcome.error:
            return outcome
        expected = known.measured_rule.outcome.answer if known.measured_rule else ()
        if not expected:  # the rule did not run: the first candidate that did is what we have
            ran = [one.outcome for one in known.tried if not one.outcome.error]
            expected = ran[0].answer if ran else outcome.answer
        if same_answer(outcome.answer, expected, known.allowed):
            return outcome
        return Outcome(error=WRONG, answer=outcome.answer, cpu=outcome.cpu)


def measure_rules(
    searches: Sequence[TaskSearch], measurer: Measurer, limit: int, *, others: bool
) -> None:
    """Measure what the rules make of some tasks, where the records do not tell.

    Parameters
    ----------
    searches : sequence of TaskSearch
        The tasks.
    measurer : Measurer
        Who measures: all of them at once, since they are compiled side by side.
    limit : int
        Kernels at most.
    others : bool
        Whether in every layout, or in the rules' own alone.
    """
    missing = [
        (search, known)
        for search in searches
        for known in [
            # At most a third of the trials: the others are for the search.
            known
            for known in search.known[: max(1, search.trials // 3) if others else 1]
            if known.measured_rule is None
        ][: search.left]
    ][:limit]
    for place, outcome in measured(measurer, [known.rule for _, known in missing]):
        search, known = missing[place]
        search.take(known, Tried(known.rule, "rule", whole(outcome)))
