"""MetaSchedule's tuning context, without TVM's tensor intrinsics.

``TuneContext.__init__`` imports all of them, which takes seconds; `tvmlab.schedule` has its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api as functions
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.mutator import Mutator
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule

from ...support.host import physical_cores


def _silent(level: int, file: str, line: int, message: str) -> None:
    """Discard MetaSchedule's log, which is a page per batch."""


def make_context(
    module: IRModule,
    target: tvm.target.Target,
    *,
    strategy: Any = None,
    space: Any = None,
    seed: int = 0,
) -> Any:
    """Make MetaSchedule's context for one function; keep it as long as the strategy is in use.

    `strategy` and `space` are MetaSchedule's; without `space`, ``pre_tuning`` takes the spaces.
    """
    # One thread: otherwise MetaSchedule assigns candidates to whichever thread is free, and each
    # draws its own random numbers. No `RewriteLayout`, which would repack weights in every call.
    if space is None:
        postprocs = [
            ms.postproc.DisallowDynamicLoop(),
            ms.postproc.RewriteParallelVectorizeUnroll(),
            ms.postproc.RewriteReductionBlock(),
        ]
        space = ms.space_generator.ScheduleFn(
            lambda schedule: [schedule], [], postprocs, Mutator.create("llvm")
        )
    if "num-cores" not in target.attrs:  # MetaSchedule needs the number
        target = tvm.target.Target({**json.loads(str(target)), "num-cores": physical_cores()})
    context = ms.TuneContext.__new__(ms.TuneContext)
    # The random state runs from 1: 0 is a fixed point of the generator, -1 asks for a random one.
    context.__init_handle_by_constructor__(
        functions.TuneContext, module, target, space, strategy, "main", 1, seed + 1, _silent
    )
    functions.TuneContextInitialize(context)
    return context


def identity(module: IRModule) -> int:
    """Hash a module by its structure: equal for kernels that compute in the same way."""
    return int(tvm_ffi.structural_hash(module))


def candidates(schedules: Sequence[s_tir.Schedule]) -> list[Any]:
    """Wrap schedules of static functions as candidates of MetaSchedule's models."""
    return [
        ms.search_strategy.MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, True))
        for schedule in schedules
    ]


def metaschedule_spaces(module: IRModule, target: tvm.target.Target) -> list[s_tir.Schedule]:
    """Return the spaces of MetaSchedule's rules for CPUs: schedules with decisions to sample."""
    rules = ScheduleRule.create("llvm")
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return list(make_context(module, target, space=space).generate_design_space())
