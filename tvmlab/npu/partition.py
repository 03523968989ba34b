"""Partition a module with a pattern table, each of whose entries the machine computes as a layer.

Relay's four passes move the matches into functions of their own. Entries are tried in order, so
patterns that end in int32 sums come after those that also requantize the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, relax

from ..errors import InputError, TvmlabError
from ..ir import graph
from ..ir.graph import is_call, key
from ..ir.partition import AnnotateTarget, MergeCompilerRegions, MergeComposite, PartitionGraph
from ..ir.patterns import DFPattern, is_constant, is_op, to_dpl, wildcard
from ..qnn import rows as quantized
from .codegen.tiling import fits
from .config import COMPILER, Config, machine
from .reading import CONVERT, bindings, check, config_of, find, kind, regions

assert quantized, "importing it fills the table with the quantized operators"

Entry = tuple[str, DFPattern, Callable[[relax.Expr], Any]]


@dataclass(frozen=True)
class Check:
    """A predicate of the pattern table: whether the machine can compute a match, and why not.

    A `layout` rejects images in the other order, a `kind` such as ``"conv2d"`` other layers.
    """

    config: Config
    layout: str | None = None
    kind: str = ""

    def __call__(self, expr: relax.Expr) -> bool:
        """Return whether the machine can compute the matched graph."""
        return self.reason(expr) is None

    def reason(self, expr: relax.Expr) -> str | None:
        """Return why the machine cannot compute a match of nested calls; None if it can."""
        if self.kind and kind(expr) != self.kind:
            return f"it is not a {self.kind}"
        try:
            match = find(expr)
            same = not self.layout or match.layout in (None, self.layout)
            orders = f"its images are {match.layout}, most of the module's {self.layout}"
            check(same, orders, CONVERT)
            values = match.values(self.layout or match.layout or "NCHW")
            return fits(match.layer, values, self.config)
        except TvmlabError as error:  # `Unsupported`, or the reference's: an invalid scale
            return f"{error.what}; {error.fix}" if error.fix else error.what


def pattern_table(config: Config | None = None, layout: str | None = None) -> list[Entry]:
    """List the patterns that the machine computes as one layer: ``(name, pattern, check)``.

    Parameters
    ----------
    config : Config, optional
        The machine, the default one if left out; only `partition` writes its sizes into regions.
    layout : str, optional
        ``"NCHW"`` or ``"NHWC"``, to reject images in the other order; by default, accept both.

    Raises
    ------
    tvmlab.errors.InputError
        `config` is not a `Config`, or `layout` is not one of the two.
    """
    if layout not in (None, "NCHW", "NHWC"):
        what = f"layout is {layout!r}; it is NCHW, NHWC or left out"
        raise InputError(what, where="npu.pattern_table")
    sizes = machine(config, "npu.pattern_table")
    rows: Sequence[tuple[str, DFPattern]] = (
        ("depthwise_conv2d", _requantized(_convolution())),
        ("conv2d", _requantized(_convolution())),
        ("dense", _requantized(_dense())),
        ("add", _clipped(is_op("qnn.add")(wildcard(), wildcard(), *_constants(6)))),
        ("add", _requantized(is_op("add")(_side(), _side()))),
        ("max_pool2d", is_op("nn.max_pool2d")(wildcard())),
        ("avg_pool2d", is_op("qnn.avg_pool2d")(wildcard(), *_constants(4))),
        ("mean", _requantized(_total())),
        ("reshape", is_op("reshape")(wildcard())),
        ("depthwise_conv2d", _clipped(_convolution())),
        ("conv2d", _clipped(_convolution())),
        ("dense", _clipped(_dense())),
        ("mean", _total()),
        ("add", _clipped(is_op("add")(_side(), _side()))),
    )
    return [(f"{COMPILER}.{name}", pattern, Check(sizes, layout, name)) for name, pattern in rows]


def _constants(count: int) -> list[DFPattern]:
    """Make constant patterns as separate objects: one object would require the same constant."""
    return [is_constant() for _ in range(count)]


def _convolution() -> DFPattern:
    data = is_op("nn.pad")(wildcard(), wildcard()) | wildcard()
    return _biased(is_op("qnn.conv2d")(data, *_constants(5)))


def _dense() -> DFPattern:
    return _biased(is_op("qnn.dense")(wildcard(), *_constants(5)))


def _biased(sums: DFPattern) -> DFPattern:
    return is_op("nn.bias_add")(sums, is_constant()) | sums


def _clipped(sums: DFPattern) -> DFPattern:
    limited = is_op("maximum")(sums, is_constant()) | is_op("minimum")(sums, is_constant())
    return is_op("clip")(sums) | limited | sums


def _requantized(sums: DFPattern) -> DFPattern:
    return _clipped(is_op("qnn.requantize")(_clipped(sums), *_constants(4)))


def _side() -> DFPattern:
    """Match one operand of an int32 addition: requantized 8-bit data, or int32 as they are."""
    narrow = wildcard().has_dtype("uint8") | wildcard().has_dtype("int8")
    return is_op("qnn.requantize")(narrow, *_constants(4)) | wildcard()


def _total() -> DFPattern:
    rectified = is_op("maximum")(wildcard(), is_constant()) | is_op("cast")(wildcard())
    return is_op("sum")(rectified | wildcard())


def partition(
    mod: ir.IRModule, config: Config | None = None, *, patterns: Sequence[Entry] | None = None
) -> ir.IRModule:
    """Move the operators that the accelerator can compute into functions, with Relay's four passes.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A quantized network in integers (`tvmlab.qnn.transform.FakeQuantizationToInteger`).
    config : Config, optional
        The machine; by default, `Config()`.
    patterns : sequence of tuple, optional
        Your own table instead of `pattern_table`; names start with ``"tvmlab_npu."``.

    Returns
    -------
    tvm.ir.IRModule
        A new module whose functions call regions: functions with the attributes ``Codegen``,
        ``npu.config`` and ``global_symbol``, made of composite functions. Returns `mod` itself if
        it is already partitioned, or if the machine can compute none of its operators.

    Raises
    ------
    tvmlab.errors.InputError
        `mod` is not a module, or is partitioned for another machine; `config` is not a `Config`.
    tvmlab.errors.RelayError
        An entry of `patterns` is malformed.
    """
    if not isinstance(mod, ir.IRModule):
        what = f"partition takes a tvm.ir.IRModule, not {type(mod).__name__}"
        raise InputError(what, where="npu.partition")
    if cut := regions(mod).values():
        if config is not None and any(config_of(one) != config for one in cut):
            what = "the module is already partitioned for another machine"
            fix = "partition the original module"
            raise InputError(what, where="npu.partition, argument config", fix=fix)
        return mod
    config = machine(config, "npu.partition")
    table = pattern_table(config, layout_of(mod)) if patterns is None else patterns
    first = [MergeComposite(table), AnnotateTarget(COMPILER, include_non_call_ops=False)]
    passes = [*first, MergeCompilerRegions(), PartitionGraph()]
    made = tvm.transform.Sequential(passes)(mod).clone()
    places = {key(call.attrs): place for place, call in enumerate(_calls(mod)) if call.attrs}
    found = regions(made)
    for name, function in found.items():
        ordered = _in_order(function, places).with_attr("npu.config", config.to_json())
        made[made.get_global_var(name)] = ordered
    return made if found else mod


def _in_order(function: relax.Function, places: dict[int, int]) -> relax.Function:
    """Sort a region's bindings by the original order of their operators, known from attributes."""
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
    """Convert a pattern table to one for Relax's `FuseOpsByPattern`."""
    entries = MergeComposite(table).table
    return [(name, to_dpl(pattern), {}, _adapted(check)) for name, pattern, check in entries]


def _adapted(check: Any) -> Any:
    """Convert a check of graphs to one for Relax; inner values must not be used elsewhere."""

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
    """Return the layout of most convolutions and poolings; None if a module has neither."""
    layouts = [
        str(call.attrs["data_layout" if is_call(call, "relax.qnn.conv2d") else "layout"])
        for call in _calls(mod)
        if is_call(call, "relax.qnn.conv2d", "relax.qnn.avg_pool2d", "relax.nn.max_pool2d")
    ]
    best = max(("NCHW", "NHWC"), key=layouts.count)
    return best if best in layouts else None


def _calls(mod: ir.IRModule) -> Iterator[relax.Call]:
    functions = (one for one in mod.functions.values() if isinstance(one, relax.Function))
    values = (value for one in functions for _, value in bound(one.body))
    return (value for value in values if isinstance(value, relax.Call))


def bound(body: relax.SeqExpr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """List the bindings of a body in order, including those inside functions and branches."""
    for var, value in bindings(body):
        if isinstance(value, relax.Function):
            yield from bound(value.body)
        elif isinstance(value, relax.If):
            yield from bound(value.true_branch)
            yield from bound(value.false_branch)
        else:
            yield var, value
