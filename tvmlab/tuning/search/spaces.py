"""MetaSchedule's own design spaces for CPUs."""

from __future__ import annotations

import tvm
from tvm import s_tir
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import ScheduleRule

from .context import make_context

__all__ = ["metaschedule_spaces"]


def metaschedule_spaces(module: IRModule, target: tvm.target.Target) -> list[s_tir.Schedule]:
    """Make the spaces that MetaSchedule's rules for CPUs span.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule, of static shapes.
    target : tvm.target.Target
        What is compiled for, of kind ``llvm``.

    Returns
    -------
    list of tvm.s_tir.Schedule
        One schedule for each way that the rules could be applied, with decisions to sample. The
        rules tile a reduction in six levels (``SSRSRS``), inline what is element-wise, split
        reductions (``rfactor``), and mark loops to run in parallel, vectorized and unrolled. None
        of them uses tensor intrinsics.

    Raises
    ------
    TuningError
        The module is not one function ``main``, or the target is no CPU.

    Notes
    -----
    The rules are those of ``ScheduleRule.create("llvm")`` (TVM's
    ``src/s_tir/meta_schedule/schedule_rule/schedule_rule.cc``, ``DefaultLLVM``).
    """
    rules = ScheduleRule.create("llvm")
    space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return list(make_context(module, target, space=space).generate_design_space())
