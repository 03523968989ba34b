"""Every point of a design space, in order: MetaSchedule has no such strategy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.search_strategy import PySearchStrategy

from .context import candidates

__all__ = ["GridSearch", "points", "size"]

FAILURES = 500
"""Points in a row that may come to nothing before a batch is handed out as it is."""


@lru_cache(maxsize=256)
def factorizations(extent: int, parts: int, innermost: int) -> tuple[tuple[int, ...], ...]:
    """List the ways to write a number as a product, in lexicographic order.

    An `innermost` above 0 is the largest last factor.
    """
    if parts == 1:
        return ((extent,),) if innermost < 1 or extent <= innermost else ()
    low = [one for one in range(1, math.isqrt(extent) + 1) if extent % one == 0]
    return tuple(
        (first, *rest)
        for first in sorted({*low, *(extent // one for one in low)})
        for rest in factorizations(extent // first, parts - 1, innermost)
    )


def _choices(
    schedule: s_tir.Schedule, inst: Any, inputs: Sequence[Any], attrs: Any
) -> Sequence[Any]:
    """List what a sampling instruction may decide where a replay has come to it."""
    kind = inst.kind.name
    if kind == "SamplePerfectTile":
        extent = int(schedule.get(inputs[0]).extent)
        return factorizations(extent, int(attrs[0]), int(attrs[1])) or ((extent,),)
    if kind == "SampleCategorical":
        return range(len(attrs[0]))
    if kind == "SampleComputeLocation":
        # -2 is inlined, -1 outside of all loops, else the loop of the first consumer.
        consumers = schedule.get_consumers(inputs[0])
        depth = len(schedule.get_loops(consumers[0])) if consumers else 0
        return range(-2, depth)
    return ()


class Walk:
    """The decisions of one trace, counted up like an odometer.

    What an instruction may decide can depend on what was decided before it (the loop that is
    split may have come out of a split), so choices are looked up while the trace is replayed.
    """

    def __init__(self, module: IRModule, space: s_tir.Schedule) -> None:
        self.module = module
        self.trace = space.trace.simplified(remove_postproc=True)
        self.digits: list[int] = []
        self.sizes: list[int] = []
        self.ended = False

    def replay(self) -> s_tir.Schedule | None:
        """Apply the trace with the present decisions; None where it does not apply."""
        schedule = s_tir.Schedule(self.module, debug_mask="none")
        place = itertools.count()
        self.sizes = []
        asked: list[int] = []

        def decide(inst: Any, inputs: Sequence[Any], attrs: Any, decision: Any) -> Any:
            choices = _choices(schedule, inst, inputs, attrs)
            if not choices:
                return decision
            index = next(place)
            if index == len(self.digits):
                self.digits.append(0)
            self.sizes.append(len(choices))
            chosen = choices[self.digits[index]]
            if inst.kind.name == "SampleComputeLocation":
                asked.append(chosen)
            return chosen

        try:
            self.trace.apply_to_schedule(schedule, True, decide)
        except Exception:  # whatever a primitive raises, this point is none
            schedule = None
        del self.digits[len(self.sizes) :]
        if schedule is not None and not _kept(schedule, asked):
            return None
        return schedule

    def advance(self) -> None:
        """Go to the next decisions: the last one counts first."""
        while self.digits:
            self.digits[-1] += 1
            if self.digits[-1] < self.sizes[len(self.digits) - 1]:
                return
            self.digits.pop()
        self.ended = True


def _kept(schedule: s_tir.Schedule, asked: list[int]) -> bool:
    """Tell whether all compute locations are those asked for; TVM moves those that do not fit."""
    trace = schedule.trace
    insts = [inst for inst in trace.insts if inst.kind.name == "SampleComputeLocation"]
    return [int(trace.get_decision(inst)) for inst in insts] == asked


def points(module: IRModule, space: s_tir.Schedule) -> Iterator[s_tir.Schedule | None]:
    """Yield a schedule for each combination of decisions, or None for one that does not apply.

    The order is lexicographic: the last instruction changes fastest, factors of tiles rise from
    left to right.
    """
    walk = Walk(module, space)
    while not walk.ended:
        yield walk.replay()
        walk.advance()


def size(module: IRModule, space: s_tir.Schedule) -> int:
    """Count the combinations of decisions of a space, without visiting all of them.

    Parameters
    ----------
    module : tvm.ir.IRModule
        What is scheduled.
    space : tvm.s_tir.Schedule
        A design space of it.

    Returns
    -------
    int
        At least 1; combinations that turn out not to apply are counted too.

    Notes
    -----
    An instruction whose first, middle and last choices leave the later ones as many choices each is
    taken not to matter to them, and its choices multiply; else each of them is followed.
    """
    walk = Walk(module, space)

    def sizes(prefix: list[int]) -> list[int]:
        walk.digits = list(prefix)
        walk.replay()
        return walk.sizes[len(prefix) :]

    def count(prefix: list[int]) -> int:
        rest = sizes(prefix)
        if not rest:
            return 1
        mine = rest[0]
        probes = {tuple(sizes([*prefix, index])) for index in {0, mine // 2, mine - 1}}
        if len(probes) == 1:
            return mine * count([*prefix, 0])
        return sum(count([*prefix, index]) for index in range(mine))

    return count([])


def estimate(module: IRModule, space: s_tir.Schedule) -> int:
    """Guess the `size` by the first point: exact where no choice changes another's."""
    walk = Walk(module, space)
    walk.replay()
    return math.prod(walk.sizes)


@derived_object
class GridSearch(PySearchStrategy):  # type: ignore[misc]
    """Proposes every candidate of the spaces in order, a point of each space alternately.

    AutoTVM's ``GridSearchTuner``. Nothing is held in memory but where each space has come to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.apply_postprocs: Callable[[s_tir.Schedule], bool] = lambda schedule: True
        self.module: IRModule | None = None
        self.walks: list[Iterator[s_tir.Schedule | None]] = []
        self.left = 0
        self.batch = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Take the module and the post-processing from a context."""
        steps = list(context.space_generator.postprocs)

        def apply(schedule: s_tir.Schedule) -> bool:
            schedule.enter_postproc()
            return all(step.apply(schedule) for step in steps)

        self.apply_postprocs = apply
        self.module = context.mod

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[s_tir.Schedule],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Start at the first point of each space."""
        self.left, self.batch = max_trials, num_trials_per_iter
        self.walks = [points(self.module, space) for space in design_spaces]

    def post_tuning(self) -> None:
        """Forget the spaces."""
        self.walks = []

    def generate_measure_candidates(self) -> list[Any] | None:
        """Go on to the next points; None where there are none left."""
        if self.left <= 0 or not self.walks:
            return None
        found: list[s_tir.Schedule] = []
        failures = 0
        while self.walks and len(found) < min(self.batch, self.left) and failures < FAILURES:
            walk = self.walks.pop(0)
            try:
                schedule = next(walk)
            except StopIteration:
                continue
            self.walks.append(walk)
            if schedule is not None and self.apply_postprocs(schedule):
                found.append(schedule)
                failures = 0
            else:
                failures += 1
        if not found and not self.walks:
            return None
        return candidates(found)

    def notify_runner_results(self, measure_candidates: list[Any], results: list[Any]) -> None:
        """Count what was measured."""
        self.left -= len(results)

    def clone(self) -> Any:
        """Make another one."""
        return GridSearch()
