"""The first pass, which cuts by patterns, and the last ones, which take regions to code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..patterns import DFPattern
from ..patterns.rewriter import attribute, change_bodies, cut_graph


@tvm.transform.module_pass(opt_level=0)
class MergeComposite:
    """The pass: each match of a pattern becomes a function, and a call of it.

    The functions have the attributes ``Composite``, the pattern's name in the table, and
    ``PartitionedFromPattern``, the operators inside.

    Parameters
    ----------
    pattern_table : sequence of tuple
        ``(name, pattern)`` or ``(name, pattern, check)``, tried in this order; ``check`` gets the
        expression that matched and says whether to take it. A name for `AnnotateTarget` starts
        with the compiler's: ``"npu.conv2d"``.

    Raises
    ------
    RelayError
        An entry of the table is something else.
    """

    def __init__(self, pattern_table: Sequence[Any]) -> None:
        self.table = [_entry(entry) for entry in pattern_table]

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""

        def merge(body: relax.Expr, _: str) -> relax.Expr:
            made = root = graph.inline_bindings(body, functions=True)
            for name, pattern, check in self.table:
                made = cut_graph(pattern, made, {"Composite": name}, check)
            return body if made.same_as(root) else made

        return change_bodies(mod, merge)


def _entry(entry: Any) -> tuple[str, DFPattern, Callable[[relax.Expr], Any]]:
    parts = list(entry) if isinstance(entry, (tuple, list)) else []
    if len(parts) == 2:
        parts.append(lambda extracted: True)
    if len(parts) == 3 and isinstance(parts[1], DFPattern) and callable(parts[2]):
        return str(parts[0]), parts[1], parts[2]
    what = "a pattern table holds (name, pattern) and (name, pattern, check)"
    fix = "make patterns with tvmlab.relay.dataflow_pattern"
    raise RelayError(what, where=f"MergeComposite: {entry!r}"[:200], fix=fix)


@tvm.transform.module_pass(opt_level=0)
class InlineRegions:
    """The pass: inline each region without a global function ``relax.ext.COMPILER``.

    Nested functions outside of the other regions are inlined as well.
    """

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        gone = {
            var.name_hint: function
            for var, function in mod.functions_items()
            if isinstance(function, relax.Function) and not _generated(function)
        }

        def inlined(body: relax.Expr, values: dict[int, relax.Expr]) -> relax.Expr:
            def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
                after = values.get(graph.key(after), after)
                if isinstance(after, relax.TupleGetItem):
                    whole = after.tuple_value
                    return whole.fields[after.index] if isinstance(whole, relax.Tuple) else after
                callee = after.op if isinstance(after, relax.Call) else None
                if isinstance(callee, ir.GlobalVar):
                    callee = gone.get(callee.name_hint)
                if not isinstance(callee, relax.Function):
                    return after
                bound = dict(zip(map(graph.key, callee.params), after.args, strict=True))
                return inlined(graph.inline_bindings(callee.body), bound)

            return graph.transform(body, change)

        made = change_bodies(mod, lambda body, _: inlined(body, {})).clone()
        for var in made.get_global_vars():
            if var.name_hint in gone:
                del made[var]
        return made


def _generated(function: relax.Function) -> bool:
    """Return whether a function is TVM's own, or a registered code generator takes it."""
    compiler = attribute(function, "Codegen") or attribute(function, "Compiler")
    return not compiler or tvm_ffi.get_global_func(f"relax.ext.{compiler}", True) is not None


def LowerRegions() -> tvm.transform.Pass:
    """Give each region to its compiler, and those without one to TVM."""
    return tvm.transform.Sequential([InlineRegions(), relax.transform.RunCodegen()])
