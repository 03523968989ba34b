"""One task: its rules measured, and its space searched batch by batch with MetaSchedule's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms

from ..errors import RecordError
from ..records.records import Records
from ..records.result import MOST_SECONDS, Result, Verdict, after, mismatch, now, target_data
from ..records.traces import as_data, replay
from ..schedule import finish
from ..support.host import physical_cores, processor_name
from ..support.wording import several, telling
from .extract import Task, Variant
from .kernels import written
from .measure import Measurer, Outcome, how
from .search.context import candidates, identity, make_context
from .search.grid import GridSearch, estimate
from .search.model import Tuner

__all__ = ["Known", "TaskSearch", "Tried", "measure_rules", "same_answer", "tolerances"]

WRONG = "It gives another answer than the rule's schedule."
BATCH = 16
"""Candidates per batch: the model can be trained anew after each."""
SMALL = 64
"""Below this many trials batches are half as large, so that the model sees several."""
HOPELESS = 24
"""Candidates that can fail before a task without any that ran is given up."""
BARREN = 10
"""Batches in a row without a new candidate after which a space counts as exhausted."""
FEW = 64
"""Points of a space that is gone through in order, whatever the tuner: drawing and evolving from a
few points, at seconds per draw where the function is large, finds the same ones again."""
ENDLESS = 2**30
"""Trials as the strategy counts them: the search has its own count."""
ROUNDING = 1e-3
"""How far sums of floating-point outputs can differ, relative to the sum of their magnitudes."""
FLIPS = 1e-5
"""The same of outputs rounded to eight bits: sums in another order flip a few roundings."""
_LONGEST_ERROR = 2000  # characters of a compiler's message


def tolerances(module: IRModule) -> list[float]:
    """Return for each output of a function how far two schedules of it can differ."""
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
    for index, share in enumerate(allowed):
        most = share * abs(expected[2 * index])
        for place in (2 * index, 2 * index + 1):
            # Written so that a NaN, which compares with nothing, is no agreement.
            if not abs(answer[place] - expected[place]) <= most:
                return False
    return True


@dataclass(frozen=True)
class Tried:
    """A candidate of a function: its record, time, expected answer, and schedule if made here."""

    module: IRModule
    record: Result | Verdict
    time: float
    answer: tuple[float, ...]
    made: s_tir.Schedule | None = None

    @cached_property
    def schedule(self) -> s_tir.Schedule | None:
        """Its schedule; None where it no longer applies."""
        if self.made is not None or self.record.trace is None:
            return self.made
        try:
            return replay(self.module, self.record.trace)
        except RecordError:
            return None

    @property
    def is_rule(self) -> bool:
        """Whether a rule made its schedule."""
        return isinstance(self.record, Result) and self.record.origin == "rule"


@dataclass
class Known:
    """What is known of one variant of a task: `last` is the date of its last measurement."""

    variant: Variant
    workload: str
    rule: s_tir.Schedule
    allowed: list[float]
    measured_rule: Tried | None = None
    tried: list[Tried] = field(default_factory=list)
    last: str = ""

    @property
    def rule_time(self) -> float:
        """The rule's median time in seconds; infinity where it failed or is not known."""
        return float("inf") if self.measured_rule is None else self.measured_rule.time

    def found(self) -> list[Tried]:
        """Return the candidates that ran, the fastest first."""
        good = [one for one in self.tried if one.time < float("inf")]
        return sorted(good, key=lambda one: one.time)


class _Driver:
    """MetaSchedule at work on one variant: strategy, database and cost model."""

    def __init__(self, search: TaskSearch, batch: int) -> None:
        known, tuner = search.current, search.tuner
        self.waiting: list[Any] = []
        self.model = tuner.model(search.seed) if tuner.model else None
        self.trouble, spaces = "", []
        module = known.variant.module
        try:
            spaces = known.variant.spaces()
        except Exception as error:  # a primitive that refuses raises several classes
            self.trouble = f"its space cannot be made: {telling(error)}"
        small = 0 < sum(estimate(module, space) for space in spaces) <= FEW
        self.strategy = GridSearch() if small else tuner.strategy()
        self.repeats = tuner.repeats and not small
        # A run that goes on from records must not draw the same candidates again.
        seed = (search.seed + len(known.tried)) % (2**31 - 2)
        self.context = make_context(module, search.task.target, strategy=self.strategy, seed=seed)
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(module)
        self.ended = not spaces
        if spaces:
            self.context.pre_tuning(ENDLESS, batch, spaces, self.database, self.model)
        old = [(one, one.schedule) for one in known.tried]
        old = [(one, schedule) for one, schedule in old if schedule is not None]
        self.seen = {identity(sch.mod) for sch in (known.rule, *(sch for _, sch in old))}
        proposed = candidates([schedule for _, schedule in old])
        self.learn([(new, one.record) for new, (one, _) in zip(proposed, old, strict=True)])

    def propose(self, limit: int) -> list[Any]:
        """Find candidates that were not measured; none where the space seems to have no more."""
        barren = 0
        while not self.waiting and not self.ended and barren < BARREN:
            proposed = self.strategy.generate_measure_candidates()
            if proposed is None:
                self.ended = True
                break
            for candidate in proposed:
                name = identity(candidate.sch.mod)
                if name not in self.seen:
                    self.seen.add(name)
                    self.waiting.append(candidate)
            # A strategy that goes through a space in order can pass by much that is known.
            if not self.waiting and (self.repeats or not proposed):
                barren += 1
        batch, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return batch

    def learn(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Tell strategy, database and model the results of candidates."""
        if not pairs:
            return
        results = []
        for candidate, result in pairs:
            times = list(result.times) or None
            results.append(ms.runner.RunnerResult(times, result.error or None))
            if times:
                trace, about = candidate.sch.trace, candidate.args_info
                self.database.commit_tuning_record(
                    ms.database.TuningRecord(
                        trace, self.workload, times, self.context.target, about
                    )
                )
        proposed = [candidate for candidate, _ in pairs]
        if self.model is not None:
            self.model.update(self.context, proposed, results)
        if not self.ended:
            self.strategy.notify_runner_results(proposed, results)

    def predict(self, batch: Sequence[Any]) -> list[float] | list[None]:
        """Ask the model for the throughput of candidates; None where it knows nothing."""
        if self.model is None or getattr(self.model, "booster", None) is None:
            return [None] * len(batch)
        return [float(one) for one in self.model.predict(self.context, batch)]


class TaskSearch:
    """The search of one task, a batch at a time; what was recorded before counts.

    `times`, `predicted` and `errors` are in the order of the trials: seconds (infinity for a
    failure), the model's prediction or None, and why candidates failed. `batches` has the fastest
    time known after each batch. `ended` says why the search is over; it is empty before. `watch` is
    called with this object after each candidate.
    """

    def __init__(
        self,
        task: Task,
        measurer: Measurer,
        records: Records,
        *,
        tuner: Tuner,
        trials: int,
        early_stopping: int | None,
        seed: int,
        watch: Callable[[TaskSearch], None],
    ) -> None:
        self.task, self.measurer, self.records = task, measurer, records
        self.tuner, self.trials, self.early_stopping = tuner, trials, early_stopping
        self.seed, self.watch = seed, watch
        self._how = how(measurer.options)
        self.times: list[float] = []
        self.predicted: list[float | None] = []
        self.errors: list[str] = []
        self.ended = ""
        self.batches: list[float] = []
        self._idle = 0
        self._undecided = False
        # A layout can only be taken where the graph can choose it, by the operator.
        variants = task.variants if task.operator else task.variants[:1]
        self.known = [self._recall(variant) for variant in variants]
        self.chosen = 0
        self._driver: _Driver | None = None

    @property
    def rule_time(self) -> float:
        """What is taken without tuning, in seconds per call; infinity where it failed."""
        return self.known[0].rule_time

    @property
    def best_time(self) -> float:
        """The fastest known, in seconds per call; infinity where nothing ran."""
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
        """Return billions of operations per second at a time."""
        return 0.0 if time == float("inf") else self.task.flops / time / 1e9

    def _recall(self, variant: Variant) -> Known:
        rule = variant.rule
        if rule is None:  # what is compiled then is the function as it is
            rule = s_tir.Schedule(variant.module, debug_mask="none")
        workload = self.records.workload(variant.module, self.task.name)
        known = Known(variant, workload, rule, tolerances(variant.module))
        for result in self.records.results(workload):
            # What failed is tried again: the machine or a limit can have been the reason.
            if result.error or result.how != self._how or mismatch(result, self.task.target):
                continue
            if self.measurer.processor not in ("", result.cpu):
                continue  # a file that was merged: times of another machine do not compare
            if result.origin != "rule":
                self._remember(known, result)
            elif known.measured_rule is None and result.trace == as_data(rule.trace):
                self._remember(known, result, rule)
        return known

    def _remember(
        self,
        known: Known,
        result: Result,
        made: s_tir.Schedule | None = None,
        predicted: float | None = None,
    ) -> None:
        tried = Tried(known.variant.module, result, result.seconds, result.answer, made)
        known.last = max(known.last, result.date)
        if tried.is_rule:
            known.measured_rule = tried
        else:
            known.tried.append(tried)
            self._idle = 0 if tried.time < self.best_time else self._idle + 1
        self.times.append(tried.time)
        self.predicted.append(predicted)
        if result.error:
            self.errors.append(result.error)

    def begin(self) -> None:
        """Choose the variant that promises most, once the rules are measured."""
        self.chosen = self.known.index(min(self.known, key=self.promise))
        self.batches.append(self.best_time)

    def promise(self, known: Known) -> float:
        """Return the fastest known time of a variant, in seconds per call."""
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
        if rule is None or rule.time == float("inf"):
            return []
        found = self.records.best(known.workload, self.task.target)
        if found is None or found.trace is None:
            return []
        # Its time is taken to be the rule's, and it must compute what the rule does.
        tried = Tried(known.variant.module, found, rule.time, rule.answer)
        new = all(found.trace != one.record.trace for one in others)
        return [tried] if new and tried.schedule is not None else []

    def choose(self, layout: str) -> None:
        """Search the variant of this layout, and no longer the fastest one's."""
        layouts = [known.variant.layout for known in self.known]
        self.chosen = layouts.index(layout)

    def step(self, limit: int) -> None:
        """Propose a batch of at most `limit` candidates, measure it, learn from it."""
        if not self._goes_on():
            return
        if self._driver is None:
            self._driver = _Driver(self, BATCH if self.trials >= SMALL else BATCH // 2)
        batch = self._driver.propose(min(limit, self.left))
        if not batch:
            self.ended = self._driver.trouble or "no candidates are left in the space"
            return
        said = self._driver.predict(batch)
        told = []
        for place, outcome in measured(self.measurer, [candidate.sch for candidate in batch]):
            result = self.take(self.current, batch[place].sch, "search", outcome, said[place])
            told.append((batch[place], result))
        self._driver.learn(told)
        self.batches.append(self.best_time)
        self._goes_on()

    def take(
        self,
        known: Known,
        schedule: s_tir.Schedule,
        origin: str,
        outcome: Outcome,
        predicted: float | None = None,
    ) -> Result:
        """Record a candidate's outcome, and count it."""
        outcome = self._checked(known, outcome, origin)
        result = Result(
            workload=known.workload,
            task=self.task.name,
            operator=self.task.operator,
            layout=known.variant.layout,
            origin=origin,
            trace=as_data(schedule.trace),
            times=() if outcome.error else tuple(map(float, outcome.times)),
            error=outcome.error[:_LONGEST_ERROR].encode(errors="replace").decode(),
            how=self._how,
            answer=tuple(map(float, outcome.answer)),
            tuner=self.tuner.name,
            seed=self.seed,
            **self._where(outcome.cpu),
        )
        self.records.append(result)
        self._undecided = True
        self._remember(known, result, schedule, predicted)
        self.watch(self)
        return result

    def _checked(self, known: Known, outcome: Outcome, origin: str) -> Outcome:
        """Turn down a candidate without sound times, or that computes something else."""
        error = outcome.error
        if not error and not outcome.times:
            error = "It was run and not timed."
        elif not error and not all(0 < time < MOST_SECONDS for time in outcome.times):
            error = f"Its times cannot be seconds: {outcome.times}"
        if not error and origin != "rule":
            expected = known.measured_rule.answer if known.measured_rule else ()
            if not expected:  # the rule did not run: compare with the first candidate that did
                expected = next((one.answer for one in known.tried if one.answer), outcome.answer)
            if not same_answer(outcome.answer, expected, known.allowed):
                error = WRONG
        return Outcome(outcome.times, error, () if error else outcome.answer, outcome.cpu)

    def _where(self, cpu: str) -> dict[str, Any]:
        """Return the fields of a record for where something was measured."""
        target = self.task.target
        threads = int(target.attrs.get("num-cores", physical_cores()))
        return {"target": target_data(target), "threads": threads, "cpu": cpu or processor_name()}

    def verdict(self) -> Verdict | None:
        """Return the verdict in the records if it came after the last measurement."""
        if self._undecided:
            return None
        found = self.older()
        last = max(known.last for known in self.known)
        return found if found is not None and found.date >= last else None

    def older(self) -> Verdict | None:
        """Return the last verdict, which compilation takes until there is another one."""
        return self.records.verdict(self.known[0].workload, self.task.target)

    def judge(self, **fields: Any) -> None:
        """Record the decision about the task."""
        own = self.known[0]
        older = self.older()
        # The last verdict has the last date, whatever clocks say.
        dates = [known.last for known in self.known] + [older.date if older else ""]
        cpu = own.measured_rule.record.cpu if own.measured_rule else ""
        verdict = Verdict(
            function=own.workload,
            task=self.task.name,
            operator=self.task.operator,
            date=max(now(), *(after(date) for date in dates if date)),
            **fields,
            **self._where(cpu),
        )
        self.records.append(verdict)
        self._undecided = False

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
        """Return whether at least `least` candidates were tried, and all of them failed."""
        return len(self.current.tried) >= least and not self.current.found()


def measured(
    measurer: Measurer, schedules: Sequence[s_tir.Schedule]
) -> Iterator[tuple[int, Outcome]]:
    """Measure schedules; yield each one's place and outcome as it is known."""
    kernels: dict[int, IRModule] = {}
    for place, schedule in enumerate(schedules):
        try:
            kernels[place] = finish(schedule)
        except Exception as error:  # TVM raises what the step that fails raises
            yield place, Outcome(error=f"It cannot be finished: {telling(error)}")
    places = list(kernels)
    for index, outcome in measurer.measure(list(kernels.values())) if kernels else ():
        yield places[index], outcome


def measure_rules(
    searches: Sequence[TaskSearch], measurer: Measurer, limit: int, *, others: bool
) -> None:
    """Measure the rules' schedules of some tasks that are not in the records, at most `limit`.

    `others` adds the schedules in every other layout. All are measured at once, because they are
    compiled side by side.
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
        search.take(known, known.rule, "rule", outcome)
