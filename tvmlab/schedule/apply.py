"""Apply the rules: one pass over every function without a schedule."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule

from .finish import finish
from .work import counted

__all__ = ["LAYOUT", "REASON", "RULE", "SCHEDULED", "ApplyRules"]

#: Function attributes: the rule that scheduled it; why none did; the tile that its weights are
#: packed for where that is not the rules' choice.
RULE, REASON, LAYOUT = "tvmlab.rule", "tvmlab.reason", "tvmlab.layout"
#: Function attribute: the function has a schedule, from whomever.
SCHEDULED = "tirx.is_scheduled"


@tvm.transform.module_pass(opt_level=0)
class ApplyRules:
    """The pass: TIR in, TIR of the same meaning out.

    It differs from dlight's `ApplyDefaultSchedule` in that a rule that raises does not end the
    compilation: the function stays as it was, and its attribute `REASON` names the rule.
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
            if isinstance(func, tirx.PrimFunc) and not func.attrs.get(SCHEDULED, False)
        }
        for var, func in updated.items():
            mod[var] = func
        return mod

    def _apply(self, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        body = func.body
        if not isinstance(body, s_tir.SBlockRealize) or body.block.name_hint != "root":
            return func.with_attr(REASON, "its loops hold no blocks")
        for rule in self.rules:
            name = _name(rule)
            try:
                found = rule.apply(func, target, False)
            except Exception as error:  # a schedule primitive that refuses raises several classes
                said = (str(error).strip() or repr(error)).splitlines()[0]
                return func.with_attr(REASON, f"{name} raised: {said}")
            if isinstance(found, s_tir.Schedule):
                made = {SCHEDULED: True, RULE: name, **counted(func)}
                return finish(found)["main"].with_attr(made)
        return func.with_attr(REASON, "no rule is made for it")


def _name(rule: ScheduleRule) -> str:
    """Name a rule; one of dlight's own with its package, for some names are in both."""
    name = type(rule).__name__
    return name if type(rule).__module__.startswith(__package__) else f"dlight.{name}"
