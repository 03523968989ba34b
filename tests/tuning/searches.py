"""Small tasks, and a measurer that computes times instead of measuring them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import IRModule

from tvmlab.records.file import Records
from tvmlab.tuning.extract import Task, Variant
from tvmlab.tuning.kernels import Measure, Outcome
from tvmlab.tuning.report import Report
from tvmlab.tuning.search.context import metaschedule_spaces
from tvmlab.tuning.session import tune_tasks

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def matmul(n: int, m: int | None = None, k: int | None = None, dtype: str = "float32") -> IRModule:
    """A matrix product of n x k by k x m without a schedule."""
    m, k = m or n, k or n
    a = te.placeholder((n, k), name="a", dtype=dtype)
    b = te.placeholder((k, m), name="b", dtype=dtype)
    along = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, along] * b[along, j], axis=along), name="c")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    return IRModule({"main": func})


def tiled(module: IRModule, parts: int = 2, innermost: int = 64) -> s_tir.Schedule:
    """A space of two tiles and an unrolling, of the product's two outer loops."""
    sch = s_tir.Schedule(module)
    block = sch.get_sblock("c")
    i, j, _ = sch.get_loops(block)
    for loop in (i, j):
        sch.split(loop, sch.sample_perfect_tile(loop, parts, innermost))
    steps = sch.sample_categorical([0, 16], [0.5, 0.5])
    sch.annotate(sch.get_sblock("root"), "meta_schedule.unroll_explicit", steps)
    return sch


def plain_rule(module: IRModule) -> s_tir.Schedule:
    """A schedule without decisions, in the place of a rule's."""
    sch = s_tir.Schedule(module)
    block = sch.get_sblock("c")
    i, _, _ = sch.get_loops(block)
    sch.parallel(i)
    return sch


def variant(
    module: IRModule,
    layout: str = "",
    spaces: Callable[[], list[s_tir.Schedule]] | None = None,
) -> Variant:
    """A variant whose space is that of `tiled`."""
    return Variant(layout, module, plain_rule(module), spaces or (lambda: [tiled(module)]))


def task(
    n: int = 16,
    name: str = "matmul",
    operator: str = "",
    calls: int = 1,
    variants: Sequence[Variant] | None = None,
) -> Task:
    """A task of one product."""
    chosen = tuple(variants or [variant(matmul(n))])
    return Task(name, operator, TARGET, calls, 2.0 * n**3, chosen)


def metaschedule_task(n: int = 64) -> Task:
    """A task whose spaces are MetaSchedule's."""
    module = matmul(n)
    one = variant(module, spaces=lambda: metaschedule_spaces(module, TARGET))
    return task(n, variants=[one])


def loops(kernel: IRModule) -> list[tuple[str, int]]:
    """List a kernel's loops, the outer ones of a nest first: kind and extent."""
    found: list[tuple[str, int]] = []

    def look(loop: tirx.For) -> None:
        found.append((tirx.ForKind(loop.kind).name, int(loop.extent)))

    tvm_ffi.structural_walk(kernel["main"].body, (tirx.For, look))
    return found[::-1]  # the walk comes to a loop after what is in it


def default_time(kernel: IRModule) -> float:
    """A time that a kernel's loops decide: 1 ms for a rule, less for tiles near 4."""
    extents = [extent for _, extent in loops(kernel)]
    if len(extents) == 3:
        return 1e-3
    return 1e-3 * (0.5 + 0.1 * sum(abs(math.log2(one) - 2) for one in extents) / len(extents))


@dataclass
class FakeMeasurer:
    """Answers at once, by functions of kernels.

    `told` is called with the number of kernels so far, before each is reported; `fought` maps the
    number of duels and the last outcomes to what is reported.
    """

    time: Callable[[IRModule], float | str] = default_time
    answer: Callable[[IRModule], tuple[float, ...]] = lambda kernel: (100.0, 1.0)
    told: Callable[[int], object] = lambda number: None
    fought: Callable[[int, list[Outcome]], list[Outcome]] = lambda number, found: found
    kernels: list[IRModule] = field(default_factory=list)
    duels: list[int] = field(default_factory=list)
    processor: str = ""
    options: Measure = field(default_factory=Measure)

    def outcome(self, kernel: IRModule, samples: int) -> Outcome:
        """Compute what a measurement would have told."""
        time = self.time(kernel)
        if isinstance(time, str):
            return Outcome(error=time)
        return Outcome(times=(time,) * samples, answer=self.answer(kernel))

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Tell of each kernel."""
        for place, kernel in enumerate(kernels):
            self.kernels.append(kernel)
            self.told(len(self.kernels))
            yield place, self.outcome(kernel, 3)

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Tell of all kernels."""
        self.duels.append(len(kernels))
        found = [self.outcome(kernel, rounds) for kernel in kernels]
        return self.fought(len(self.duels), found)


def run(
    tasks: Sequence[Task], path: Path | Records, measurer: FakeMeasurer | None = None, **how: Any
) -> tuple[Report, FakeMeasurer]:
    """Tune some tasks with a fake measurer, quietly."""
    measurer = measurer or FakeMeasurer()
    records = path if isinstance(path, Records) else Records(path)
    return tune_tasks(tasks, measurer, records, progress=False, **how), measurer
