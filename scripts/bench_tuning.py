"""How many candidates a minute are compiled and measured: by us, and by MetaSchedule's defaults."""

from __future__ import annotations

import random
import time
from typing import Any

import tvm
from tvm import s_tir, te

from tvmlab import host_target
from tvmlab.tuning.measure import Measure

SIZE = 512
CANDIDATES = 64
# MetaSchedule's default, and what is taken where no candidate is ready in that time.
UPSTREAM_SECONDS, LONGER_SECONDS = 30.0, 300.0


def candidates(number: int, size: int = SIZE) -> list[tvm.ir.IRModule]:
    """Schedule a matrix product in different ways.

    Parameters
    ----------
    number : int
        How many.
    size : int
        Rows and columns of the matrices.

    Returns
    -------
    list of tvm.ir.IRModule
        Two levels of tiles, the rows in parallel, the innermost columns as vectors; the tiles are
        drawn, always the same ones.
    """
    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    product = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    function = te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")
    drawn = random.Random(0)
    made = []
    for _ in range(number):
        sch = s_tir.Schedule(tvm.IRModule({"main": function}))
        block = sch.get_sblock("C")
        i, j, k_ = sch.get_loops(block)
        rows = sch.split(i, [None, drawn.choice([1, 2, 4, 8]), drawn.choice([1, 2, 4, 8])])
        columns = sch.split(j, [None, drawn.choice([1, 2, 4]), drawn.choice([16, 32, 64])])
        depth = sch.split(k_, [None, drawn.choice([4, 8, 16, 32])])
        sch.reorder(
            rows[0], columns[0], rows[1], columns[1], depth[0], depth[1], rows[2], columns[2]
        )
        sch.parallel(rows[0])
        sch.vectorize(columns[2])
        sch.decompose_reduction(block, depth[0])
        made.append(sch.mod)
    return made


def ours(number: int) -> dict[str, Any]:
    """Measure candidates with this package; the seconds, and how many were measured."""
    from tvmlab.tuning.measuring.local import LocalMeasurer

    batch = candidates(number)
    start = time.perf_counter()
    with LocalMeasurer(host_target(), Measure()) as measurer:
        outcomes = [outcome for _, outcome in measurer.measure(batch)]
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "measured": sum(bool(outcome.times) for outcome in outcomes)}


def upstream(number: int) -> dict[str, Any]:
    """Do the same with `LocalBuilder` and `LocalRunner`; and the time limit that was needed."""
    # Where workers are not even ready in time, each candidate would take the whole limit.
    some = bool(_upstream(candidates(2), UPSTREAM_SECONDS))
    limit = UPSTREAM_SECONDS if some else LONGER_SECONDS
    batch = candidates(number)
    start = time.perf_counter()
    measured = _upstream(batch, limit)
    return {"seconds": time.perf_counter() - start, "measured": measured, "limit": limit}


def _upstream(batch: list[tvm.ir.IRModule], limit: float) -> int:
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput

    how, target = Measure(), host_target()
    builder = LocalBuilder(timeout_sec=limit)
    runner = LocalRunner(
        timeout_sec=limit,
        evaluator_config=EvaluatorConfig(
            number=how.number,
            repeat=how.repeat,
            min_repeat_ms=how.min_repeat_ms,
            enable_cpu_cache_flush=how.cache_flush,
        ),
    )
    built = builder.build([BuilderInput(module, target) for module in batch])
    inputs = [
        RunnerInput(result.artifact_path, "cpu", ArgInfo.from_entry_func(module, True))
        for module, result in zip(batch, built, strict=True)
        if result.artifact_path is not None
    ]
    found = [future.result() for future in runner.run(inputs)]
    return sum(result.run_secs is not None for result in found)
