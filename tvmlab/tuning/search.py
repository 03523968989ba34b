"""One task: its rules measured, and its space searched batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms

from .._telling import telling
from ..errors import RecordError
from ..target import physical_cores
from .answers import output_types, same_answer
from .context import candidates, identity, make_context
from .measure import Measurer, Outcome
from .records import Records
from .result import Result, fits, target_data
from .task import Task, Variant
from .traces import as_data, replay
from .tuners import Tuner

__all__ = ["TaskSearch", "Tried", "kernel_of"]

WRONG = "It gives another answer than the rule's schedule."
BATCH = 16
"""Candidates a batch: the model is trained anew after each."""
SMALL = 64
"""Below this many trials batches are half as large, so that the model sees several."""
BARREN = 10
"""Batches in a row without a new candidate after which a space counts as exhausted."""
HOPELESS = 24
"""Candidates that may fail before a task without any that ran is given up."""
ENDLESS = 2**30


def kernel_of(schedule: s_tir.Schedule) -> IRModule:
    """Make the module that is measured of a schedule."""
    return schedule.mod


@dataclass(frozen=True)
class Tried:
    """A candidate, and what became of it.

    Attributes
    ----------
    schedule : tvm.s_tir.Schedule or None
        None where the trace of an old record no longer applies.
    origin : str
        ``"rule"`` or ``"search"``.
    outcome : Outcome
        From the measurer, or from the records.
    """

    schedule: s_tir.Schedule | None
    origin: str
    outcome: Outcome

    @property
    def time(self) -> float:
        """The median time in seconds; infinity for one that failed."""
        good = self.outcome.times and not self.outcome.error
        return median(self.outcome.times) if good else float("inf")


@dataclass
class _Known:
    """What is known of one variant of a task."""

    variant: Variant
    workload: str
    rule: s_tir.Schedule
    types: list[str]
    measured_rule: Tried | None = None
    tried: dict[int, Tried] = field(default_factory=dict)
    duels: list[Result] = field(default_factory=list)

    @property
    def rule_time(self) -> float:
        return float("inf") if self.measured_rule is None else self.measured_rule.time

    def found(self) -> list[Tried]:
        """List what the search tried and what ran, the fastest first."""
        good = [one for one in self.tried.values() if one.time < float("inf")]
        return sorted(good, key=lambda one: one.time)


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
        self.times: list[float] = []
        """The time of each candidate in the order of their trials; infinity where one failed."""
        self.errors: list[str] = []
        self.ended = ""
        """Why the search is over; empty while it is not."""
        # A layout can only be taken where the graph can be told of it, by the operator.
        variants = task.variants if task.operator else task.variants[:1]
        self.known = [self._recall(variant) for variant in variants]
        self.chosen = 0
        self._driver: _Driver | None = None
        self._bests: list[float] = []

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
    def batches(self) -> list[float]:
        """The fastest known after each batch, in seconds a call."""
        return self._bests

    @property
    def left(self) -> int:
        """Trials that are left."""
        return max(0, self.trials - len(self.times))

    @property
    def current(self) -> _Known:
        """The variant that is searched."""
        return self.known[self.chosen]

    def gflops(self, time: float) -> float:
        """Say a time as billions of operations a second."""
        return 0.0 if time == float("inf") else self.task.flops / time / 1e9

    def _recall(self, variant: Variant) -> _Known:
        rule = variant.rule
        if rule is None:  # what is compiled then is the function as it is
            rule = s_tir.Schedule(variant.module, debug_mask="none")
        workload = self.records.workload(variant.module, self.task.name)
        known = _Known(variant, workload, rule, output_types(variant.module))
        for result in self.records.results(workload):
            if fits(result, self.task.target):
                continue
            if result.against:
                known.duels.append(result)
                continue
            outcome = Outcome(tuple(result.times), result.error, tuple(result.answer))
            if result.origin == "rule":
                if result.trace == as_data(rule.trace):
                    self._remember(known, Tried(rule, "rule", outcome))
                continue
            try:
                schedule = replay(variant.module, result.trace)
            except RecordError:
                self.times.append(float("inf"))
                continue
            self._remember(known, Tried(schedule, "search", outcome))
        return known

    def _remember(self, known: _Known, tried: Tried) -> None:
        assert tried.schedule is not None
        if tried.origin == "rule":
            known.measured_rule = tried
        else:
            known.tried[identity(tried.schedule.mod)] = tried
            known.duels.clear()  # they were fought before this one was known
        self.times.append(tried.time)
        if tried.outcome.error:
            self.errors.append(tried.outcome.error)

    # What is measured next.

    def measure_rules(self) -> None:
        """Measure what the rules make of each variant, where the records do not tell."""
        missing = [known for known in self.known if known.measured_rule is None][: self.left]
        pairs = [(known, known.rule) for known in missing]
        for _ in self._measure(pairs, "rule"):
            pass
        fastest = min(self.known, key=lambda known: known.rule_time)
        self.chosen = self.known.index(fastest)
        self._bests.append(self.best_time)

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
            self._driver = _Driver(self, BATCH if self.trials >= SMALL else BATCH // 2)
        most = self.left if limit is None else min(limit, self.left)
        batch = self._driver.propose(most)
        if not batch:
            self.ended = "no candidates are left in the space"
            return 0
        known = self.current
        pairs = [(known, candidate.sch) for candidate in batch]
        tried = dict(self._measure(pairs, "search"))
        self._driver.learn([(batch[place], one) for place, one in tried.items()])
        self._bests.append(self.best_time)
        self._goes_on()
        return len(batch)

    def _goes_on(self) -> bool:
        if self.ended:
            return False
        if self.left == 0:
            self.ended = "all trials are done"
        elif self.early_stopping is not None and self._idle() >= self.early_stopping:
            self.ended = f"nothing better in {self._idle()} trials"
        elif self.hopeless(HOPELESS):
            self.ended = "no candidate ran"
        return not self.ended

    def _idle(self) -> int:
        """Count the trials since the best one."""
        best = min(self.times, default=float("inf"))
        return len(self.times) - 1 - self.times.index(best) if best < float("inf") else 0

    def hopeless(self, least: int = 1) -> bool:
        """Tell whether as many candidates were tried as `least`, and all of them failed."""
        return len(self.current.tried) >= least and not self.current.found()

    def _measure(
        self, pairs: Sequence[tuple[_Known, s_tir.Schedule]], origin: str
    ) -> Iterator[tuple[int, Tried]]:
        """Measure schedules, and record each outcome before the next is waited for."""
        kernels: dict[int, IRModule] = {}
        failed: list[tuple[int, Outcome]] = []
        for place, (_, schedule) in enumerate(pairs):
            try:
                kernels[place] = kernel_of(schedule)
            except Exception as error:  # TVM raises what the pass that fails raises
                failed.append((place, Outcome(error=f"It cannot be lowered: {telling(error)}")))
        places = list(kernels)

        def outcomes() -> Iterator[tuple[int, Outcome]]:
            yield from failed
            for index, outcome in self.measurer.measure(list(kernels.values())):
                yield places[index], outcome

        for place, given in outcomes():
            known, schedule = pairs[place]
            outcome = given if origin == "rule" else self._judge(known, given)
            tried = Tried(schedule, origin, outcome)
            self.record(known, tried)
            self._remember(known, tried)
            self.watch(self)
            yield place, tried

    def _judge(self, known: _Known, outcome: Outcome) -> Outcome:
        """Turn down a candidate that computes something else than its rule."""
        if outcome.error:
            return Outcome(error=outcome.error)
        if not outcome.times:
            return Outcome(error="It was run and not timed.")
        expected = known.measured_rule.outcome.answer if known.measured_rule else ()
        if not expected:  # the rule did not run: the first candidate that did is what we have
            ran = [one.outcome for one in known.tried.values() if not one.outcome.error]
            expected = ran[0].answer if ran else outcome.answer
        if same_answer(outcome.answer, expected, known.types):
            return outcome
        return Outcome(error=WRONG, answer=outcome.answer)

    def record(self, known: _Known, tried: Tried, against: Sequence[float] = ()) -> Result:
        """Append a line to the records."""
        assert tried.schedule is not None
        result = Result(
            workload=known.workload,
            task=self.task.name,
            operator=self.task.operator,
            layout=known.variant.layout,
            origin=tried.origin,
            trace=as_data(tried.schedule.trace),
            times=tuple(tried.outcome.times),
            error=tried.outcome.error,
            against=tuple(against),
            answer=tuple(tried.outcome.answer),
            tuner=self.tuner.name,
            seed=self.seed,
            target=target_data(self.task.target),
            threads=int(self.task.target.attrs.get("num-cores", physical_cores())),
        )
        self.records.append(result)
        return result

    def predict(self, schedules: Sequence[s_tir.Schedule]) -> list[float]:
        """Ask the tuner's model what it thinks of some schedules of the chosen variant.

        Parameters
        ----------
        schedules : sequence of tvm.s_tir.Schedule
            Schedules of the variant's function, those tried for instance.

        Returns
        -------
        list of float
            Throughputs relative to the best known. Empty where the tuner has no model, or nothing
            was measured yet.
        """
        return [] if self._driver is None else self._driver.predict(schedules)


class _Driver:
    """MetaSchedule's strategy, database and model for one variant of a task."""

    def __init__(self, search: TaskSearch, batch: int) -> None:
        known, tuner = search.current, search.tuner
        self.known, self.tuner = known, tuner
        self.waiting: list[Any] = []
        self.model = tuner.model(search.seed) if tuner.model else None
        self.strategy = tuner.strategy()
        # A run that goes on from records must not draw the same candidates again.
        self.context = make_context(
            known.variant.module,
            search.task.target,
            strategy=self.strategy,
            seed=(search.seed + len(known.tried)) % (2**31 - 2),
        )
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(known.variant.module)
        self.ended = False
        spaces = known.variant.spaces()
        if spaces:
            self.context.pre_tuning(ENDLESS, batch, spaces, self.database, self.model)
        else:
            self.ended = True
        old = [one for one in known.tried.values() if one.schedule is not None]
        self.learn(list(zip(candidates([one.schedule for one in old]), old, strict=True)))

    def propose(self, limit: int) -> list[Any]:
        """Find candidates that were not measured; none where the space seems to have no more."""
        barren = 0
        while not self.waiting and not self.ended and barren < BARREN:
            proposed = self.strategy.generate_measure_candidates()
            if proposed is None:
                self.ended = True
                break
            seen = {*self.known.tried, identity(self.known.rule.mod)}
            for candidate in proposed:
                name = identity(candidate.sch.mod)
                if name not in seen:
                    seen.add(name)
                    self.waiting.append(candidate)
            # A strategy that goes through a space in order may pass by much that is known.
            if not self.waiting and (self.tuner.repeats or not proposed):
                barren += 1
        batch, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return batch

    def learn(self, pairs: Sequence[tuple[Any, Tried]]) -> None:
        """Tell strategy, database and model what became of candidates."""
        if not pairs:
            return
        results = []
        for candidate, tried in pairs:
            good = tried.time < float("inf")
            times = [float(one) for one in tried.outcome.times] if good else None
            results.append(ms.runner.RunnerResult(times, tried.outcome.error or None))
            if times:
                self.database.commit_tuning_record(
                    ms.database.TuningRecord(
                        candidate.sch.trace,
                        self.workload,
                        times,
                        self.context.target,
                        candidate.args_info,
                    )
                )
        proposed = [candidate for candidate, _ in pairs]
        if self.model is not None:
            self.model.update(self.context, proposed, results)
        if not self.ended:
            self.strategy.notify_runner_results(proposed, results)

    def predict(self, schedules: Sequence[s_tir.Schedule]) -> list[float]:
        """Ask the model."""
        if self.model is None or not schedules:
            return []
        return [float(one) for one in self.model.predict(self.context, candidates(schedules))]
