"""Schedules that were found by measuring: where they come from, and the pass that applies them."""

from __future__ import annotations

import warnings
from typing import Protocol

import tvm
from tvm import s_tir, tirx

from .apply import RULE, SCHEDULED
from .finish import finish
from .layouts import operators
from .work import counted

__all__ = ["ApplyTuned", "Tuned", "found_layouts"]


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
                f"the tuning records have several layouts for {operator}, which stand in the way "
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
