"""Cutting a module: what the machine takes goes into functions of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import ir, relax

from ..errors import InputError
from ..ir import dialect
from ..ir.partition import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
)
from ..ir.partition.functions import attribute
from ..ir.patterns import to_dpl
from .config import COMPILER, Config, machine
from .patterns import Entry, pattern_table
from .reading import config_of, regions
from .regions import merge_composites

__all__ = ["layout_of", "partition", "relax_patterns", "relay_passes"]


def partition(
    mod: ir.IRModule, config: Config | None = None, *, patterns: Sequence[Entry] | None = None
) -> ir.IRModule:
    """Put what the accelerator takes into functions of its own.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        Relax, its network in integers (`tvmlab.qnn.transform.FakeQuantizationToInteger`). It is
        left as it is.
    config : Config, optional
        The machine; the default one where it is left out.
    patterns : sequence of tuple, optional
        A table of your own instead of `pattern_table`'s: ``(name, pattern)`` or ``(name, pattern,
        check)``, names starting with ``"tvmlab_npu."``.

    Returns
    -------
    tvm.ir.IRModule
        The module itself where it has regions already, or there is nothing to take; else one
        whose functions call regions: functions with the attributes ``Codegen``,
        ``npu.config`` and ``global_symbol``, which hold composite functions, constants inside.
        Regions are as large as they can be without needing their own results by way of others.

    Raises
    ------
    tvmlab.errors.InputError
        `mod` is no module, or has regions for another machine; `config` is no `Config`.
    tvmlab.errors.RelayError
        An entry of `patterns` is none.

    Notes
    -----
    Matching is Relax's own `FuseOpsByPattern`; joining is `tvmlab.npu.merge`.
    """
    if not isinstance(mod, ir.IRModule):
        raise InputError(
            f"partition takes a tvm.ir.IRModule, not {type(mod).__name__}", where="npu.partition"
        )
    cut = regions(mod).values()
    if cut and config is not None and any(config_of(one) != config for one in cut):
        raise InputError(
            "the module has regions already, for another machine",
            where="npu.partition, argument config",
            fix="partition the module that it was before",
        )
    if cut:
        return mod
    config = machine(config, "npu.partition")
    table = pattern_table(config, layout_of(mod)) if patterns is None else list(patterns)
    # With constants bound, the pass compares all functions that it made with each other.
    fuse = relax.transform.FuseOpsByPattern(
        relax_patterns(table), bind_constants=False, annotate_codegen=False
    )
    return merge_composites(fuse(_live(mod)), mod, config)


def _live(mod: ir.IRModule) -> ir.IRModule:
    """Leave out unused bindings: they belong to no region."""
    made = mod.clone()
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            made[var] = relax.analysis.remove_all_unused(function)
    return made


def relax_patterns(table: Sequence[Entry]) -> list[tuple[Any, ...]]:
    """Turn a pattern table into one for `relax.transform.FuseOpsByPattern`.

    Parameters
    ----------
    table : sequence of tuple
        Of `pattern_table`, or like it.

    Returns
    -------
    list of tuple
        ``(name, pattern of relax.dpl, annotations, check)``. The check refuses what Relay would
        not cut out either: a match whose inner values are used outside of it.
    """
    made: list[tuple[Any, ...]] = []
    for name, pattern, check in MergeComposite(table).table:
        made.append((name, to_dpl(pattern), {}, _Adapted(check)))
    return made


class _Adapted:
    """A check on graphs, as one on what FuseOpsByPattern found."""

    def __init__(self, check: Any) -> None:
        self.check = check

    def __call__(self, context: relax.transform.PatternCheckContext) -> bool:
        values = dict(context.matched_bindings.items())
        inside = set(values)
        for var, value in values.items():
            if not value.same_as(context.matched_expr):
                users = context.var_usages.get(var, [])
                if not isinstance(var, relax.DataflowVar) or any(u not in inside for u in users):
                    return False
        return bool(self.check(_graph(context.matched_expr, values)))


def _graph(expr: relax.Expr, values: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """Put values where variables stand for them; matches are a few calls deep."""
    if isinstance(expr, relax.Var):
        return _graph(values[expr], values) if expr in values else expr
    if not isinstance(expr, relax.Call):
        return expr
    args = [_graph(arg, values) for arg in expr.args]
    if all(a.same_as(b) for a, b in zip(args, expr.args, strict=True)):
        return expr
    made = relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    relax.expr._update_type(made, expr.ty)
    return made


def relay_passes(config: Config | None = None) -> tvm.transform.Pass:
    """Give Relay's four passes that cut a module as `partition` does.

    Parameters
    ----------
    config : Config, optional
        The machine.

    Returns
    -------
    tvm.transform.Pass
        ``MergeComposite(pattern_table(config))``, ``AnnotateTarget("tvmlab_npu")``,
        ``MergeCompilerRegions()`` and ``PartitionGraph()``; then the regions get their attribute
        ``npu.config``.
    """
    sizes = config or Config()

    def run(mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        passes = [
            MergeComposite(pattern_table(sizes, layout_of(mod))),
            AnnotateTarget(COMPILER, include_non_call_ops=False),
            MergeCompilerRegions(),
            PartitionGraph(),
        ]
        made = tvm.transform.Sequential(passes)(mod).clone()
        for var, function in made.functions_items():
            if var.name_hint not in mod and attribute(function, "Codegen") == COMPILER:
                made[var] = function.with_attr("npu.config", sizes.to_json())
        return made

    return tvm.transform.module_pass(run, opt_level=0, name="PartitionForNpu")


def layout_of(mod: ir.IRModule) -> str | None:
    """Give the layout of most of a module's convolutions and poolings; None if there are none."""
    counts = {"NCHW": 0, "NHWC": 0}
    for function in _functions(mod):
        for call in _calls(function.body):
            counts[_layout(call)] = counts.get(_layout(call), 0) + 1
    best = max(("NCHW", "NHWC"), key=lambda layout: counts[layout])
    return best if counts[best] else None


def _functions(mod: ir.IRModule) -> list[relax.Function]:
    return [one for one in mod.functions.values() if isinstance(one, relax.Function)]


def _layout(call: relax.Call) -> str:
    name = str(call.op.name) if isinstance(call.op, ir.Op) else ""
    if name in ("relax.qnn.conv2d", "relax.qnn.avg_pool2d"):
        a = dialect.attributes(call)
        return str(a.get("data_layout") or a.get("layout"))
    return str(call.attrs.layout) if name == "relax.nn.max_pool2d" else ""


def _calls(body: relax.Expr) -> Iterator[relax.Call]:
    """List the calls bound in a body, in functions and branches inside too."""
    stack = [body]
    while stack:
        expr = stack.pop()
        if isinstance(expr, relax.Call):
            yield expr
        elif isinstance(expr, relax.SeqExpr):
            stack += [binding.value for block in expr.blocks for binding in block.bindings]
        elif isinstance(expr, relax.Function):
            stack.append(expr.body)
        elif isinstance(expr, relax.If):
            stack += [expr.true_branch, expr.false_branch]
