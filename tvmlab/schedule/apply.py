"""Apply schedules to every function without one: tuned schedules first, then the rules."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm_ffi import structural_equal

from . import loops
from .elementary import by_polynomials
from .prefetch import fetch_ahead
from .tails import split_parallel, split_tails, split_vectors
from .tile_size import operators
from .work import counted

#: Function attributes: the rule that scheduled it; why no rule did; the tile that its weights are
#: packed for, if that is not the rules' choice.
RULE, REASON, LAYOUT = "tvmlab.rule", "tvmlab.reason", "tvmlab.layout"
#: Function attribute: the function has a schedule, from any source.
SCHEDULED = "tirx.is_scheduled"


@tvm.transform.module_pass(opt_level=0)
class ApplyRules:
    """The pass: TIR in, scheduled TIR with the same semantics out.

    Unlike dlight's `ApplyDefaultSchedule`, the pass survives a rule that raises: the function stays
    as it was, and its attribute `REASON` names the rule.
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
        named = _with_named_size(func)
        reason = "no rule matches it"
        for rule in self.rules:
            name = _name(rule)
            try:
                found = rule.apply(named, target, False)
            except Exception as error:  # schedule primitives raise errors of several classes
                said = (str(error).strip() or repr(error)).splitlines()[0]
                reason = f"{name} raised: {said}"
                break
            if isinstance(found, s_tir.Schedule):
                made = {SCHEDULED: True, RULE: name, **counted(func)}
                return finish(found.mod["main"]).with_attr(made)
        sch = s_tir.Schedule(func)
        loops.start_sums(sch)
        return sch.mod["main"].with_attr(REASON, reason)


def finish(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Complete a scheduled function: prefetch its weights, and expand elementary functions."""
    return by_polynomials(split_parallel(split_vectors(fetch_ahead(split_tails(func)))))


def _with_named_size(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace a size such as ``50 * n`` by a variable if all open sizes of parameters are equal.

    TVM proves less about an expression: the sums of a tile would be allocated on the heap. Where
    the body uses ``n`` alone, it stays: it is a parameter itself.
    """
    sizes = [size for param in func.params for size in getattr(param, "shape", ())]
    sizes = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if not sizes or isinstance(sizes[0], tirx.Var):
        return func
    plain, kind = sym.Analyzer().simplify, type(sizes[0])
    first, rows = plain(sizes[0]), tirx.Var("rows", sizes[0].ty.dtype)
    if not all(structural_equal(plain(size), first) for size in sizes):
        return func
    named: tirx.PrimFunc = tvm_ffi.structural_map(
        func, (kind, lambda size: rows if structural_equal(plain(size), first) else size)
    )
    return named


def _name(rule: ScheduleRule) -> str:
    """Name a rule; prefix one of dlight's with its package, because some names occur in both."""
    name = type(rule).__name__
    return name if type(rule).__module__.startswith(__package__) else f"dlight.{name}"


class Tuned(Protocol):
    """The tuning results for one target."""

    def layout(self, func: tirx.PrimFunc) -> str | None:
        """Return the tile that the weights of a function's operator are best packed for."""
        ...

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function; None if no schedule is known that beats the rules."""
        ...

    def done(self) -> None:
        """End the lookup, after all functions were looked up."""
        ...


def found_layouts(mod: tvm.ir.IRModule, tuned: Tuned) -> dict[str, str]:
    """Look up the layouts of a module's operators."""
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
                f"the tuning records have conflicting layouts for {operator}, which keeps the "
                "layout of the rules; tune this network again",
                RuntimeWarning,
                stacklevel=2,
            )
    alone = {operator: layouts.pop() for operator, layouts in named.items() if len(layouts) == 1}
    return {operator: layout for operator, layout in alone.items() if layout}


@tvm.transform.module_pass(opt_level=0)
class ApplyTuned:
    """The pass: unscheduled TIR in, scheduled TIR out for functions with tuning results."""

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
                    made = finish(found.mod["main"])
                    mod[var] = made.with_attr({SCHEDULED: True, RULE: "tuned", **counted(func)})
        self.tuned.done()
        return mod
