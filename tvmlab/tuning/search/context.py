"""MetaSchedule's tuning context, without what its Python constructor costs.

``TuneContext.__init__`` imports all of TVM's tensor intrinsics, which serves nothing here: layouts
and instructions are the business of `tvmlab.schedule`. The constructor below calls the same
registered C++ functions and leaves that import out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api as functions
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.mutator import Mutator, PyMutator
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule

from ...errors import TuningError
from ...support.host import physical_cores
from ...support.target import spelled

__all__ = ["candidates", "check_seed", "identity", "make_context", "metaschedule_spaces"]


def _silent(level: int, file: str, line: int, message: str) -> None:
    """Take MetaSchedule's log, which is a page a batch, and drop it."""


def _with_cores(target: tvm.target.Target) -> tvm.target.Target:
    """Add the physical cores to a CPU target without ``num-cores``, which MetaSchedule needs."""
    if target.kind.name != "llvm" or "num-cores" in target.attrs:
        return target
    return tvm.target.Target({**json.loads(str(target)), "num-cores": physical_cores()})


def _postprocs() -> list[Any]:
    """Return MetaSchedule's steps after all decisions of a schedule are made.

    ``RewriteLayout`` is left out, because it would repack weights in every call: layouts are
    chosen by `tvmlab.schedule`, and weights packed once.
    """
    return [
        ms.postproc.DisallowDynamicLoop(),
        ms.postproc.RewriteParallelVectorizeUnroll(),
        ms.postproc.RewriteReductionBlock(),
    ]


@derived_object
class _MutateCategorical(PyMutator):  # type: ignore[misc]
    """Changes one ``sample_categorical`` decision of a trace.

    MetaSchedule's own mutators change such a decision only where it says how far to unroll; the
    spaces of `tvmlab.schedule` choose more than that from a list.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.draw = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Take nothing from the context."""

    def apply(self, trace: s_tir.schedule.Trace, _: Any) -> s_tir.schedule.Trace | None:
        """Make a trace with one other choice; None where there is nothing to choose."""
        choices = [
            inst
            for inst in trace.insts
            if inst.kind.name == "SampleCategorical" and len(inst.attrs[0]) > 1
        ]
        if not choices:
            return None
        inst = self.draw.choice(choices)
        now = int(trace.get_decision(inst))
        others = [index for index in range(len(inst.attrs[0])) if index != now]
        return trace.with_decision(inst, self.draw.choice(others), remove_postproc=True)

    def clone(self) -> Any:
        """Make another of the same seed."""
        return _MutateCategorical(self.seed)


def _mutators(seed: int) -> dict[Any, float]:
    # MetaSchedule's weights for CPUs, and ours for what none of them changes.
    weights: dict[Any, float] = dict(Mutator.create("llvm").items())
    weights[_MutateCategorical(seed)] = 0.15
    return weights


def check_seed(seed: int) -> None:
    """Refuse a seed that MetaSchedule's generator has no state for, with a TuningError."""
    if type(seed) is not int or not 0 <= seed <= 2**31 - 3:
        raise TuningError(
            f"the seed {seed!r} is not a whole number from 0 to 2**31 - 3", fix="give such a one"
        )


def make_context(
    module: IRModule,
    target: tvm.target.Target,
    *,
    strategy: Any = None,
    space: Any = None,
    seed: int = 0,
) -> Any:
    """Make a context for one function.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule.
    target : tvm.target.Target
        What is compiled for.
    strategy : tvm.s_tir.meta_schedule.SearchStrategy, optional
        What proposes candidates.
    space : tvm.s_tir.meta_schedule.SpaceGenerator, optional
        What makes design spaces; by default none, and the spaces are given to
        ``pre_tuning``.
    seed : int
        Where all random decisions start, 0 to 2**31 - 3.

    Returns
    -------
    tvm.s_tir.meta_schedule.TuneContext
        Keep it as long as the strategy is used, which does not.

    Raises
    ------
    TuningError
        The module is not one function ``main``, the target is no CPU, or the seed is out of range.

    Notes
    -----
    It works with one thread. With more, MetaSchedule deals candidates to whichever thread is free,
    each of which draws its own random numbers, so a seed does not decide what comes out.
    """
    if [name.name_hint for name in module.get_global_vars()] != ["main"]:
        raise TuningError(
            "a module to tune has one TIR function, named main",
            where=", ".join(name.name_hint for name in module.get_global_vars()),
        )
    if target.kind.name != "llvm":
        raise TuningError(
            f"schedules are searched for CPUs, not for {target.kind.name}",
            where=spelled(target),
            fix='tune for a target of kind "llvm"',
        )
    check_seed(seed)
    if space is None:
        space = ms.space_generator.ScheduleFn(
            lambda schedule: [schedule], [], _postprocs(), _mutators(seed)
        )
    context = ms.TuneContext.__new__(ms.TuneContext)
    # The random state runs from 1: 0 is a fixed point of the generator, -1 asks for a random one.
    context.__init_handle_by_constructor__(
        functions.TuneContext,
        module,
        _with_cores(target),
        space,
        strategy,
        "main",
        1,
        seed + 1,
        _silent,
    )
    functions.TuneContextInitialize(context)
    return context


def identity(module: IRModule) -> int:
    """Hash a module by its structure: equal for kernels that compute in the same way."""
    return int(tvm_ffi.structural_hash(module))


def candidates(schedules: Sequence[s_tir.Schedule]) -> list[Any]:
    """Wrap schedules as MetaSchedule's models take them.

    Parameters
    ----------
    schedules : sequence of tvm.s_tir.Schedule
        Schedules of static functions.

    Returns
    -------
    list of tvm.s_tir.meta_schedule.MeasureCandidate
    """
    return [
        ms.search_strategy.MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, True))
        for schedule in schedules
    ]


def metaschedule_spaces(module: IRModule, target: tvm.target.Target) -> list[s_tir.Schedule]:
    """Return the spaces of MetaSchedule's rules for CPUs: schedules with decisions to sample.

    The rules are those of ``ScheduleRule.create("llvm")``. They tile a reduction in six levels
    (``SSRSRS``), inline what is element-wise, split reductions (``rfactor``), and mark loops to run
    in parallel, vectorized and unrolled. None of them uses tensor intrinsics.
    """
    rules = ScheduleRule.create("llvm")
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return list(make_context(module, target, space=space).generate_design_space())
