"""Schedules that were found by measuring: where they come from, and the pass that applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import tvm
from tvm import s_tir, tirx

from .apply import RULE, SCHEDULED
from .finish import finish

__all__ = ["ApplyTuned", "Tuned"]


class Tuned(Protocol):
    """What was found for one target."""

    @property
    def layouts(self) -> Mapping[str, str]:
        """The tiles to pack weights for: see `Layouts`."""
        ...

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function; None where nothing better than the rules is known."""
        ...


@tvm.transform.module_pass(opt_level=0)
class ApplyTuned:
    """The pass: TIR that nobody has scheduled in, scheduled TIR out where something was found.

    Parameters
    ----------
    tuned : Tuned
        What was found.
    """

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
                    mod[var] = made.with_attr({SCHEDULED: True, RULE: "tuned"})
        return mod
