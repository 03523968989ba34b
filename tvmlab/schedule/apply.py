"""Apply schedules to every function without one: those that were measured, and the rules."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule

from .prefetch import finish
from .tile_size import operators
from .work import counted

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


class Tuned(Protocol):
    """What was found for one target."""

    def layout(self, func: tirx.PrimFunc) -> str | None:
        """Name the tile that the weights of a function's operator were found best packed for."""
        ...

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function; None where nothing better than the rules is known."""
        ...

    def done(self) -> None:
        """Take note that all functions were asked about."""
        ...


def found_layouts(mod: tvm.ir.IRModule, tuned: Tuned) -> dict[str, str]:
    """Ask for the layouts of a module's operators."""
    named: dict[str, set[str | None]] = {}
    for func in mod.functions.values():
        if isinstance(func, tirx.PrimFunc):
            held = operators(func)
            layout = tuned.layout(func) if held else None
            for operator in held:
                named.setdefault(operator, set()).add(layout)
    for operator, layouts in named.items():
        if len(layouts - {None}) > 1:
            warnings.warn(
                f"the tuning records have several layouts for {operator}, which conflict "
                "of each other: it keeps the rules'; tune this network again",
                RuntimeWarning,
                stacklevel=2,
            )
    alone = {operator: layouts.pop() for operator, layouts in named.items() if len(layouts) == 1}
    return {operator: layout for operator, layout in alone.items() if layout}


@tvm.transform.module_pass(opt_level=0)
class ApplyTuned:
    """The pass: unscheduled TIR in, scheduled TIR out where something was found."""

    def __init__(self, tuned: Tuned) -> None:
        self.tuned = tuned

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc) and not func.attrs.get(SCHEDULED, False):
                found = self.tuned.schedule(func)
                if found is not None:
                    made = finish(found)["main"]
                    mod[var] = made.with_attr({SCHEDULED: True, RULE: "tuned", **counted(func)})
        self.tuned.done()
        return mod
