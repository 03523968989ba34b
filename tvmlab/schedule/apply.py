"""Apply the rules: one pass over every function that nobody has scheduled yet."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule

__all__ = ["REASON", "RULE", "ApplyRules"]

#: Function attributes: the rule that scheduled it, or why none did.
RULE, REASON = "tvmlab.rule", "tvmlab.reason"
_SCHEDULED = "tirx.is_scheduled"


@tvm.transform.module_pass(opt_level=0)
class ApplyRules:
    """The pass: TIR in, TIR of the same meaning out.

    It differs from dlight's `ApplyDefaultSchedule` in that a rule that raises does not end the
    compilation: the function stays as it was, and its attribute `REASON` says what happened.

    Parameters
    ----------
    rules : sequence of ScheduleRule
        The first that does not return None schedules a function.
    """

    def __init__(self, rules: Sequence[ScheduleRule]) -> None:
        self.rules = rules

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        target = tvm.target.Target.current(allow_none=False)
        updated = {
            var: self._apply(func, target)
            for var, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and not func.attrs.get(_SCHEDULED, False)
        }
        for var, func in updated.items():
            mod[var] = func
        return mod

    def _apply(self, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        reason = "no rule is made for it"
        for rule in self.rules:
            name = type(rule).__name__
            try:
                found = rule.apply(func, target, False)
            except Exception as error:  # a schedule primitive that refuses raises several classes
                lines = str(error).strip().splitlines()
                reason = f"{name}: {lines[-1] if lines else repr(error)}"
                continue
            if isinstance(found, s_tir.Schedule):
                return found.mod["main"].with_attr({_SCHEDULED: True, RULE: name})
        return func.with_attr(REASON, reason)
