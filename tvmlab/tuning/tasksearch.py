"""Search one task: measure its rules, then its space, batch by batch with MetaSchedule's parts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms

from ..errors import RecordError
from ..records.entries import Result, Verdict, as_data, mismatch, replay, target_data
from ..records.file import Records
from ..support.host import physical_cores, processor_name
from ..support.wording import several, telling
from .extract import Task, Variant
from .kernels import Outcome, expect_number, written
from .measurers import Measurer
from .report import Progress
from .search.context import candidates, identity, make_context
from .search.grid import GridSearch, size
from .search.model import TUNERS, find_tuner

WRONG = "Its result differs from that of the rule's schedule."
BATCH = 16  # candidates: the model can be retrained after each batch
SMALL = 64  # With fewer trials, batches are half as large, so that the model sees several.
HOPELESS = 24  # a task is given up after this many failures without a candidate that ran
BARREN = 10  # batches in a row without a new candidate after which a space counts as exhausted
# The size up to which a space is enumerated, whatever the tuner: drawing and evolving from a
# few points finds the same ones again, at seconds per draw if the function is large.
FEW = 64
ENDLESS = 2**30  # trials for the strategy, because `TaskSearch` counts them itself
# The tolerance of sums of floating-point outputs, relative to the sum of their magnitudes; and
# of 8-bit outputs: sums in another order change a few roundings.
ROUNDING, FLIPS = 1e-3, 1e-5
_LONGEST_ERROR = 2000  # characters of a compiler's message
_SEEDS = 2**31 - 2  # the states of MetaSchedule's generator


@dataclass(frozen=True)
class Options:
    """The options of a search: see `tune`. The clock starts here."""

    trials: int = 64
    total_trials: int | None = None
    tuner: str = "xgb"
    early_stopping: int | None = None
    seconds: float | None = None
    seed: int = 0
    again: bool = False
    progress: bool = True
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Reject invalid options before anything is lowered or measured."""
        find_tuner(self.tuner)
        expect_number("trials", self.trials, 1)
        expect_number("seed", self.seed, 0)
        for name in ("total_trials", "early_stopping"):
            if getattr(self, name) is not None:
                expect_number(name, getattr(self, name), 1)
        if self.seconds is not None:
            expect_number("seconds", self.seconds, 1e-3, whole=False)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


def tolerances(module: IRModule) -> list[float]:
    """Return the tolerance of each output of a function between two schedules."""
    function = module["main"]
    rounds = any("float" in str(parameter.dtype) for parameter in function.params)
    found = []
    for place in written(function):
        dtype = str(function.params[place].dtype)
        eight = dtype in ("int8", "uint8") and rounds
        found.append(ROUNDING if "float" in dtype else FLIPS if eight else 0.0)
    return found


def same_answer(
    answer: Sequence[float], expected: Sequence[float], allowed: Sequence[float]
) -> bool:
    """Compare two fingerprints, of two numbers per output, within `tolerances`."""
    if len(answer) != len(expected) or len(answer) != 2 * len(allowed):
        return False
    pairs = zip(allowed, expected[::2], strict=True)
    most = [share * abs(magnitudes) for share, magnitudes in pairs for _ in range(2)]
    # A NaN compares with nothing, so it does not count as equal.
    return all(abs(a - b) <= c for a, b, c in zip(answer, expected, most, strict=True))


@dataclass
class Layout:
    """One variant of a task: its rule's schedule, and its measurements."""

    variant: Variant
    workload: str
    rule: s_tir.Schedule
    allowed: list[float]
    by_rule: Result | None = None
    found: list[Result] = field(default_factory=list)

    @property
    def rule_time(self) -> float:
        """The rule's median time in seconds; infinity if it failed or is unknown."""
        return float("inf") if self.by_rule is None else self.by_rule.seconds

    @property
    def ran(self) -> list[Result]:
        """The candidates that ran, the fastest first."""
        return sorted((one for one in self.found if one.times), key=lambda one: one.seconds)

    @property
    def expected(self) -> tuple[float, ...]:
        """The rule's result, or that of the first candidate that ran if the rule failed."""
        known = [self.by_rule] if self.by_rule else []
        return next((one.answer for one in [*known, *self.found] if one.answer), ())

    def schedule(self, trace: Any) -> s_tir.Schedule | None:
        """Replay a trace, or take the rule's schedule for None; None if it no longer applies."""
        try:
            return self.rule if trace is None else replay(self.variant.module, trace)
        except RecordError:
            return None


@dataclass(eq=False)
class TaskSearch:
    """The search of one task, a batch at a time, on top of earlier records.

    `times` has the seconds of each trial, infinity for a failure, and `errors` why candidates
    failed. `batches` has the fastest known time after each batch. `ended` is the reason why the
    search ended; it is empty before.
    """

    task: Task
    measurer: Measurer
    records: Records
    options: Options
    progress: Progress
    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    ended: str = ""

    def __post_init__(self) -> None:
        """Look up the measurements of earlier runs."""
        self._idle = 0
        self._strategy: Any = None
        # A layout is usable only if the graph can choose it for the operator.
        variants = self.task.variants if self.task.operator else self.task.variants[:1]
        self.layouts = [self._recall(variant) for variant in variants]
        self.chosen = self.layouts[0]

    @property
    def rule_time(self) -> float:
        """Seconds per call without tuning; infinity if that schedule failed."""
        return self.layouts[0].rule_time

    @property
    def best_time(self) -> float:
        """The shortest known time, in seconds per call; infinity if nothing ran."""
        return min(self.times, default=float("inf"))

    @property
    def left(self) -> int:
        """The remaining trials."""
        return max(0, self.options.trials - len(self.times))

    def _recall(self, variant: Variant) -> Layout:
        """Look up a variant's measurements in the records."""
        rule = variant.rule
        if rule is None:  # compilation then uses the function unscheduled
            rule = s_tir.Schedule(variant.module, debug_mask="none")
        workload = self.records.workload(variant.module, self.task.name)
        layout = Layout(variant, workload, rule, tolerances(variant.module))
        for result in self.records.results(workload):
            # Failures are tried again, because the machine or a limit can be the reason. Times of
            # another machine, or measured in another way, are not comparable.
            if (
                not result.error
                and result.how == self.measurer.options.how
                and not mismatch(result, self.task.target)
                and self.measurer.processor in ("", result.cpu)
                and (result.origin != "rule" or result.trace == as_data(rule.trace))
            ):
                self._count(layout, result)
        return layout

    def _count(self, layout: Layout, result: Result) -> None:
        if result.origin == "rule":
            layout.by_rule = result
        else:
            layout.found.append(result)
            self._idle = 0 if result.seconds < self.best_time else self._idle + 1
        self.times.append(result.seconds)
        if result.error:
            self.errors.append(result.error)

    def begin(self) -> None:
        """Choose the most promising variant, once the rules are measured."""
        self.chosen = min(self.layouts, key=self.promise)
        self.batches.append(self.best_time)

    def promise(self, layout: Layout) -> float:
        """Return the shortest known time of a variant, in seconds per call."""
        times = [layout.rule_time, *(one.seconds for one in layout.found)]
        found = self.records.best(layout.workload, self.task.target)
        if found:
            times.append(found.ratio * self.rule_time)
        return min(times)

    def step(self, limit: int) -> None:
        """Propose a batch of at most `limit` candidates, measure it, learn from it."""
        if not self._goes_on():
            return
        if self._strategy is None and not self._start():
            return
        batch = self._propose(min(limit, self.left))
        if not batch:
            self.ended = "no candidates are left in the space"
            return
        learned = []
        for place, outcome in self.measurer.measure([one.sch.mod for one in batch]):
            result = self.take(self.chosen, batch[place].sch, "search", outcome)
            learned.append((batch[place], result))
        self._learn(learned)
        self.batches.append(self.best_time)
        self._goes_on()

    def _start(self) -> bool:
        """Make the strategy, its database and its cost model, and pass them the known results."""
        layout, tuner = self.chosen, TUNERS[self.options.tuner]
        module = layout.variant.module
        try:
            spaces = layout.variant.spaces()
        except Exception as error:  # schedule primitives raise errors of several classes
            self.ended = f"its space cannot be created: {telling(error)}"
            return False
        batch = BATCH if self.options.trials >= SMALL else BATCH // 2
        # A run that continues from records must not draw the same candidates again.
        seed = (self.options.seed + len(layout.found)) % _SEEDS
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(module)
        self._model = tuner.model(self.options.seed % _SEEDS) if tuner.model else None
        old = [
            (candidates([schedule])[0], one)
            for one in layout.found
            if (schedule := layout.schedule(one.trace)) is not None
        ]
        self._seen = {identity(sch.mod) for sch in (layout.rule, *(one.sch for one, _ in old))}
        few = sum(size(module, space) for space in spaces) <= FEW
        strategy = None if few or tuner.strategy is None else tuner.strategy()
        self._context = make_context(module, self.task.target, strategy=strategy, seed=seed)
        if strategy is None:
            self._strategy = GridSearch(self._context, spaces, batch, self._seen)
        else:
            self._strategy = strategy
            self._context.pre_tuning(ENDLESS, batch, spaces, self._database, self._model)
        self._learn(old)
        return True

    def _propose(self, limit: int) -> list[Any]:
        """Find candidates that were not measured; none if the space seems exhausted."""
        for _ in range(BARREN):
            new = []
            for candidate in self._strategy.generate_measure_candidates() or ():
                name = identity(candidate.sch.mod)
                if name not in self._seen:
                    self._seen.add(name)
                    new.append(candidate)
            if new:
                return new[:limit]
        return []

    def _learn(self, pairs: Sequence[tuple[Any, Result]]) -> None:
        """Pass the results of candidates to the strategy, the database and the model."""
        if not pairs:
            return
        proposed = [candidate for candidate, _ in pairs]
        results = [
            ms.runner.RunnerResult(list(one.times) or None, one.error or None) for _, one in pairs
        ]
        target = self._context.target
        for one, result in pairs:
            if result.times:
                record = ms.database.TuningRecord(
                    one.sch.trace, self._workload, list(result.times), target, one.args_info
                )
                self._database.commit_tuning_record(record)
        if self._model is not None:
            self._model.update(self._context, proposed, results)
        self._strategy.notify_runner_results(proposed, results)

    def take(
        self, layout: Layout, schedule: s_tir.Schedule, origin: str, outcome: Outcome
    ) -> Result:
        """Record a candidate's outcome, and count it."""
        error = outcome.error
        if not error and not (outcome.times and min(outcome.times) > 0):
            error = "It ran, but was not timed."
        if not error and origin != "rule":
            expected = layout.expected or outcome.answer
            if not same_answer(outcome.answer, expected, layout.allowed):
                error = WRONG
        result = Result(
            workload=layout.workload,
            layout=layout.variant.layout,
            origin=origin,
            trace=as_data(schedule.trace),
            times=() if error else outcome.times,
            error=error[:_LONGEST_ERROR],
            how=self.measurer.options.how,
            answer=() if error else outcome.answer,
            tuner=self.options.tuner,
            seed=self.options.seed,
            **self._where(outcome.cpu),
        )
        self.records.append(result)
        self._count(layout, result)
        best, rule = (self.task.flops / one / 1e9 for one in (self.best_time, self.rule_time))
        text = f"{self.task.name} {len(self.times)}/{self.options.trials}, best {best:.1f} GFLOP/s"
        self.progress.done += 1
        self.progress.show(f"{text}, rule {rule:.1f}", last=self.left == 0)
        return result

    def _where(self, cpu: str) -> dict[str, Any]:
        """Return a record's fields for the machine and the task."""
        target = self.task.target
        return {
            "task": self.task.name,
            "operator": self.task.operator,
            "target": target_data(target),
            "threads": int(target.attrs.get("num-cores", physical_cores())),
            "cpu": cpu or processor_name(),
        }

    def verdict(self) -> Verdict | None:
        """Return the last verdict, which compilation uses until there is another one."""
        return self.records.verdict(self.layouts[0].workload, self.task.target)

    def decided(self) -> bool:
        """Return whether the last verdict came after the last measurement."""
        found = self.verdict()
        results = [one for layout in self.layouts for one in (layout.by_rule, *layout.found)]
        return found is not None and all(one is None or one.date <= found.date for one in results)

    def judge(
        self, layout: Layout, rule: float, trace: Any = None, ratios: Sequence[float] = ()
    ) -> Verdict:
        """Make a verdict on the task; the rule's seconds are 0 if the rule's schedule fails."""
        own = self.layouts[0]
        return Verdict(
            function=own.workload,
            workload=layout.workload,
            layout=layout.variant.layout,
            rule=rule,
            trace=trace,
            ratios=tuple(ratios),
            **self._where(own.by_rule.cpu if own.by_rule else ""),
        )

    def _goes_on(self) -> bool:
        if self.ended:
            return False
        if self.left == 0:
            self.ended = "all trials are done"
        elif self.options.early_stopping is not None and self._idle >= self.options.early_stopping:
            self.ended = f"nothing better in {several(self._idle, 'trial')}"
        elif self.failed(HOPELESS):
            self.ended = "no candidate ran"
        return not self.ended

    def failed(self, least: int) -> bool:
        """Return whether at least `least` candidates were tried, and all of them failed."""
        return len(self.chosen.found) >= least and not self.chosen.ran
