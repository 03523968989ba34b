"""Partition a module: what the accelerator takes goes into functions of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import ir, relax

from ..errors import InputError
from ..ir import graph
from ..ir.graph import is_call, key
from ..ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from ..ir.patterns import to_dpl
from .config import COMPILER, Config, machine
from .patterns import Entry, pattern_table
from .reading import bindings, config_of, kind, regions


def partition(
    mod: ir.IRModule, config: Config | None = None, *, patterns: Sequence[Entry] | None = None
) -> ir.IRModule:
    """Put what the accelerator takes into functions of its own, by Relay's four passes.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A network in integers (`tvmlab.qnn.transform.FakeQuantizationToInteger`), not changed.
    config : Config, optional
        The machine, the default one if left out.
    patterns : sequence of tuple, optional
        Your own table in place of `pattern_table`'s; names start with ``"tvmlab_npu."``.

    Returns
    -------
    tvm.ir.IRModule
        A module whose functions call regions: functions with the attributes ``Codegen``,
        ``npu.config`` and ``global_symbol``, made of composite functions in the order of the
        bindings. The module itself if it has regions, or if the machine takes nothing of it.

    Raises
    ------
    tvmlab.errors.InputError
        `mod` is no module, or has regions for another machine; `config` is no `Config`.
    tvmlab.errors.RelayError
        An entry of `patterns` has another form.
    """
    if not isinstance(mod, ir.IRModule):
        what = f"partition takes a tvm.ir.IRModule, not {type(mod).__name__}"
        raise InputError(what, where="npu.partition")
    if cut := regions(mod).values():
        if config is not None and any(config_of(one) != config for one in cut):
            raise InputError(
                "the module has regions already, for another machine",
                where="npu.partition, argument config",
                fix="partition the module that it was before",
            )
        return mod
    config, calls = machine(config, "npu.partition"), list(_calls(mod))
    if patterns is None:
        # Each pattern costs a walk over the module, so those without an operator here are left out.
        present = {f"{COMPILER}.{kind(call)}" for call in calls}
        patterns = [row for row in pattern_table(config, layout_of(mod)) if row[0] in present]
    first = [MergeComposite(patterns), AnnotateTarget(COMPILER, include_non_call_ops=False)]
    passes = [*first, MergeCompilerRegions(), PartitionGraph()]
    made = tvm.transform.Sequential(passes)(mod).clone()
    places = {key(call.attrs): place for place, call in enumerate(calls) if call.attrs}
    found = regions(made)
    for name, function in found.items():
        ordered = _in_order(function, places).with_attr("npu.config", config.to_json())
        made[made.get_global_var(name)] = ordered
    return made if found else mod


def _in_order(function: relax.Function, places: dict[int, int]) -> relax.Function:
    """Sort a region's bindings, which Relay's passes reorder, by their operators' places before.

    An operator is known by its attributes; one without attributes follows its operands.
    """
    ranks: dict[int, int] = {}
    kept = [binding for block in function.body.blocks for binding in block.bindings]
    for binding in kept:
        value = binding.value
        used = [ranks.get(key(var), -1) for var in relax.analysis.free_vars(value)]
        composite = isinstance(value, relax.Function)
        inside = [one for _, one in bound(value.body)] if composite else [value]
        known = [places.get(key(one.attrs), -1) for one in inside if getattr(one, "attrs", None)]
        ranks[key(binding.var)] = max([-1, *used, min(known, default=-1)])
    kept.sort(key=lambda binding: ranks[key(binding.var)])
    body = relax.SeqExpr([relax.BindingBlock(kept)], function.body.body)
    relax.expr._update_type(body, function.body.ty)
    return relax.Function(function.params, body, function.ret_ty, True, function.attrs)


def relax_patterns(table: Sequence[Entry]) -> list[tuple[Any, ...]]:
    """Turn a pattern table into one for Relax's `FuseOpsByPattern`."""
    entries = MergeComposite(table).table
    return [(name, to_dpl(pattern), {}, _adapted(check)) for name, pattern, check in entries]


def _adapted(check: Any) -> Any:
    """Turn a check of graphs into one for Relax; inner values must not be used elsewhere."""

    def passes(context: relax.transform.PatternCheckContext) -> bool:
        values = dict(context.matched_bindings.items())
        for var, value in values.items():
            if not value.same_as(context.matched_expr):
                users = context.var_usages.get(var, [])
                if not isinstance(var, relax.DataflowVar) or any(u not in values for u in users):
                    return False
        block = relax.BindingBlock([relax.VarBinding(var, value) for var, value in values.items()])
        return bool(check(graph.inline_bindings(relax.SeqExpr([block], context.matched_expr))))

    return passes


def layout_of(mod: ir.IRModule) -> str | None:
    """Return the layout of most of a module's convolutions and poolings; None if it has none."""
    layouts = [
        str(call.attrs["data_layout" if is_call(call, "relax.qnn.conv2d") else "layout"])
        for call in _calls(mod)
        if is_call(call, "relax.qnn.conv2d", "relax.qnn.avg_pool2d", "relax.nn.max_pool2d")
    ]
    best = max(("NCHW", "NHWC"), key=layouts.count)
    return best if best in layouts else None


def _calls(mod: ir.IRModule) -> Iterator[relax.Call]:
    """List the calls bound in a module's functions."""
    functions = (one for one in mod.functions.values() if isinstance(one, relax.Function))
    values = (value for one in functions for _, value in bound(one.body))
    return (value for value in values if isinstance(value, relax.Call))


def bound(body: relax.SeqExpr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """List what is bound in a body, in its order; functions and branches give what is inside."""
    for var, value in bindings(body):
        if isinstance(value, relax.Function):
            yield from bound(value.body)
        elif isinstance(value, relax.If):
            yield from bound(value.true_branch)
            yield from bound(value.false_branch)
        else:
            yield var, value
