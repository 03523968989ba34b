"""Enumerate every point of a design space, because MetaSchedule has no such strategy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule

from .context import candidates, identity


@lru_cache(maxsize=256)
def factorizations(extent: int, parts: int, innermost: int) -> tuple[tuple[int, ...], ...]:
    """List the factorizations of a number; `innermost` above 0 limits the last factor."""
    if parts == 1:
        return ((extent,),) if innermost < 1 or extent <= innermost else ()
    return tuple(
        (first, *rest)
        for first in range(1, extent + 1)
        if extent % first == 0
        for rest in factorizations(extent // first, parts - 1, innermost)
    )


def _choices(
    schedule: s_tir.Schedule, inst: Any, inputs: Sequence[Any], attrs: Any
) -> Sequence[Any]:
    """List the possible decisions of a sampling instruction that a replay has reached."""
    kind = inst.kind.name
    if kind == "SamplePerfectTile":
        extent = int(schedule.get(inputs[0]).extent)
        return factorizations(extent, int(attrs[0]), int(attrs[1])) or ((extent,),)
    if kind == "SampleCategorical":
        return range(len(attrs[0]))
    if kind == "SampleComputeLocation":
        # -2 means inlined, -1 outside of all loops, else the loop of the first consumer.
        consumers = schedule.get_consumers(inputs[0])
        depth = len(schedule.get_loops(consumers[0])) if consumers else 0
        return range(-2, depth)
    return ()


def _replayed(
    module: IRModule, trace: s_tir.schedule.Trace, digits: list[int]
) -> tuple[s_tir.Schedule | None, list[int]]:
    """Replay a trace with these decisions, then with choice 0; also count the choices."""
    schedule = s_tir.Schedule(module, debug_mask="none")
    sizes: list[int] = []

    def decide(inst: Any, inputs: Sequence[Any], attrs: Any, decision: Any) -> Any:
        choices = _choices(schedule, inst, inputs, attrs)
        if not choices:
            return decision
        sizes.append(len(choices))
        return choices[digits[len(sizes) - 1] if len(sizes) <= len(digits) else 0]

    try:
        trace.apply_to_schedule(schedule, True, decide)
    except Exception:  # a primitive can raise an error of any class
        return None, sizes
    return schedule, sizes


def points(module: IRModule, space: s_tir.Schedule) -> Iterator[s_tir.Schedule | None]:
    """Yield a schedule for each combination of decisions, None for an invalid one.

    The last instruction changes fastest, and factors of tiles rise from left to right.
    """
    trace = space.trace.simplified(remove_postproc=True)
    digits: list[int] = []
    while True:
        schedule, sizes = _replayed(module, trace, digits)
        yield schedule
        digits = [*digits, *[0] * len(sizes)][: len(sizes)]
        while digits and digits[-1] + 1 == sizes[len(digits) - 1]:
            digits.pop()
        if not digits:
            return
        digits[-1] += 1


def size(module: IRModule, space: s_tir.Schedule) -> int:
    """Count the combinations of decisions of a space, including invalid ones.

    The product of the choices at the first point is exact if no choice changes the number of
    another's.
    """
    trace = space.trace.simplified(remove_postproc=True)
    return math.prod(_replayed(module, trace, [])[1])


class GridSearch:
    """AutoTVM's ``GridSearchTuner``: all points in order, alternating between the spaces."""

    def __init__(
        self, context: Any, spaces: Sequence[s_tir.Schedule], batch: int, seen: set[int]
    ) -> None:
        self.batch = batch
        self._new = self._walk(context, spaces, set(seen))

    def _walk(
        self, context: Any, spaces: Sequence[s_tir.Schedule], seen: set[int]
    ) -> Iterator[s_tir.Schedule]:
        steps = list(context.space_generator.postprocs)
        turns = itertools.zip_longest(*(points(context.mod, space) for space in spaces))
        for schedule in itertools.chain.from_iterable(turns):
            if schedule is None:
                continue
            schedule.enter_postproc()
            if all(step.apply(schedule) for step in steps):
                name = identity(schedule.mod)
                if name not in seen:
                    seen.add(name)
                    yield schedule

    def generate_measure_candidates(self) -> list[Any] | None:
        """Return the next new points; None if there are none left."""
        return candidates(list(itertools.islice(self._new, self.batch))) or None

    def notify_runner_results(self, _candidates: list[Any], _results: list[Any]) -> None:
        """Ignore measurements."""
