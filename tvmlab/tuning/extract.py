"""Tasks: the functions of a module that `tvmlab.compile` would schedule, in several layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.ir import IRModule

from ..compiler import cut, simplify
from ..errors import TuningError
from ..frontend.tir import with_main
from ..schedule import Layouts, Tile, channels_last, fused_passes, rules
from ..schedule.apply import SCHEDULED
from ..schedule.tile_size import operators
from .search.context import metaschedule_spaces

# Tiles of an operator that are tried besides the rules' own; how many of them share a width.
_OTHERS, _OF_A_WIDTH = 7, 2


@dataclass(frozen=True)
class Variant:
    """A task's function with one packing of its weights.

    Attributes
    ----------
    layout : str
        The layout in the format of `tvmlab.schedule`; empty for a function with only one layout.
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule: MetaSchedule's workload.
    rule : tvm.s_tir.Schedule or None
        Its schedule by the rules of `tvmlab.schedule`; None if no rule matches.
    spaces : callable
        Returns the design spaces: schedules of `module` with decisions to sample.
    """

    layout: str
    module: IRModule
    rule: s_tir.Schedule | None
    spaces: Callable[[], list[s_tir.Schedule]]


@dataclass(frozen=True)
class Task:
    """One function of a network.

    Attributes
    ----------
    name, operator : str
        The function's name, and the operator whose layout is chosen, or an empty string.
    target : tvm.target.Target
        The target that it is compiled for.
    calls, flops : int, float
        How often the network calls it, and operations per call; a multiply-add counts as two.
    variants : tuple of Variant
        At least one; `tvmlab.compile` uses the first one without records.
    """

    name: str
    operator: str
    target: tvm.target.Target
    calls: int
    flops: float
    variants: tuple[Variant, ...]


def tasks(
    mod: IRModule | tirx.PrimFunc,
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
    *,
    layouts: bool = True,
) -> list[Task]:
    """List the tasks of a module.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        A module with a Relax function ``main``, or a TIR function, as for `tvmlab.compile`.
    target : tvm.target.Target, mapping or str, optional
        A CPU; by default, the host. For a composite such as ``"npu, llvm"``, the functions
        that stay on the CPU are tuned.
    layouts : bool
        Whether operators can have other weight packings than the rules'.

    Returns
    -------
    list of Task
        One per fused function, in the order of their first call, without functions that have a
        schedule or unknown sizes.

    Raises
    ------
    CompileError
        The module has no Relax function ``main``.
    TuningError
        The target is not a CPU, or no function of the module can be tuned.
    """
    mod, made = cut(with_main(mod), target)
    if made.kind.name != "llvm":
        raise TuningError(
            f"a target of kind {made.kind.name} cannot be tuned here",
            where=str(made),
            fix="tune for a CPU: a target of kind llvm",
        )
    found: list[Task] = []
    with made:
        # The layouts of activations do not depend on the tiles, so they are converted once.
        mod = channels_last()(simplify(mod, made))
        first = Layouts()
        lowered = fused_passes(made, layouts=first)(mod)
        names = _calls(lowered)
        tiles = {operator: _others(ranked) for operator, ranked in first.ranked.items() if layouts}
        others = []  # tiles by operator; the functions with them, by the names of those without
        for rank in range(max(map(len, tiles.values()), default=0)):
            chosen = {name: str(each[rank]) for name, each in tiles.items() if rank < len(each)}
            packed = fused_passes(made, layouts=Layouts(chosen))(mod)
            called = [packed[name] for name in _calls(packed)]
            if len(called) == len(names):
                others.append((chosen, dict(zip(names, called, strict=True))))
        for name, count in Counter(names).items():
            func = lowered[name]
            if _tunable(func):
                operator = next(iter(operators(func)), "")
                variants = [_variant("", func, made)]
                for chosen, functions in others:
                    if operator in chosen and operator in operators(functions[name]):
                        variants.append(_variant(chosen[operator], functions[name], made))
                flops = float(s_tir.analysis.estimate_tir_flops(variants[0].module))
                found.append(Task(name, operator, made, count, flops, tuple(variants)))
    if not found:
        raise TuningError(
            "there is nothing to tune",
            where="the module's function main",
            fix="pass a module with static shapes, whose operators TVM lowers to loops",
        )
    return found


def _others(ranked: tuple[Tile, ...]) -> list[Tile]:
    """Choose the tiles to try: the next best by the rules' estimate, at most two of each width."""
    count = Counter([ranked[0].channels])
    chosen = []
    for tile in ranked[1:]:
        count[tile.channels] += 1
        if count[tile.channels] <= _OF_A_WIDTH:
            chosen.append(tile)
    return chosen[:_OTHERS]


def _calls(mod: IRModule) -> list[str]:
    """List the TIR functions that ``main`` calls, in order, with repetitions."""
    called: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.call_tir":
            called.append(expr.args[0].name_hint)

    relax.analysis.post_order_visit(mod["main"].body, visit)
    return called


def _tunable(func: tirx.PrimFunc) -> bool:
    """Return whether a function has blocks to schedule, and static sizes."""
    body = func.body
    if func.attrs.get(SCHEDULED, False) or not isinstance(body, s_tir.SBlockRealize):
        return False
    shapes = [getattr(param.ty, "shape", [None]) for param in func.params]
    known = all(isinstance(size, tirx.IntImm) for shape in shapes for size in shape)
    return known and body.block.name_hint == "root"  # TVM's schedules need a root block


def _variant(layout: str, func: tirx.PrimFunc, target: tvm.target.Target) -> Variant:
    module = IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        rule = _by_rules(module, target, tunable=False)
    except Exception:  # compile leaves such a function unscheduled
        rule = None
    return Variant(layout, module, rule, partial(_spaces, module, target))


def _by_rules(module: IRModule, target: tvm.target.Target, *, tunable: bool) -> Any:
    """Schedule a function as `tvmlab.compile` does; a tunable rule returns a list of spaces."""
    made = (rule.apply(module["main"], target, tunable) for rule in rules())
    return next((one for one in made if one is not None), None)


def _spaces(module: IRModule, target: tvm.target.Target) -> list[s_tir.Schedule]:
    """Return the design spaces: the rule's, and MetaSchedule's."""
    made = _by_rules(module, target, tunable=True)
    own = made if isinstance(made, list) else []
    return [*own, *metaschedule_spaces(module, target)]
