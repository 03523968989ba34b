"""Put what a compiler takes as one into functions of its own, by patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import ir, relax

from ...errors import RelayError
from ..patterns import DFPattern, partition
from .functions import change_bodies

Entry = tuple[str, DFPattern] | tuple[str, DFPattern, Callable[[relax.Expr], Any]] | Sequence[Any]

# Why not `relax.transform.FuseOpsByPattern(annotate_codegen=False)`, and `MergeCompositeFunctions`
# for the two passes that come last: tried on Relay's own cases, they leave what Relay left for
# diamonds, several outputs and several compilers, but
# - of two matches that overlap the former takes the one nearer to the inputs, Relay the one nearer
#   to the result: of `relu(relu(relu(x)))` the pattern `relu(relu(_))` takes the other two;
# - it cuts a match out whose inner value is used outside too, as a function of two results, where
#   Relay lets it be (`Composite` functions have one result, and code generators rely on it);
# - it looks into dataflow blocks only, which a function with an `if` or a function inside has not;
# - its predicates get Relax's bindings by name, Relay's the expression that was matched;
# - composite functions become private global functions, which Relay's next pass does not see;
# - the latter joins composite functions only: single operators of `AnnotateTarget`, marks made by
#   hand, tuples and projections of a region it does not know.


@tvm.transform.module_pass(opt_level=0)
class MergeComposite:
    """The pass: each match of a pattern becomes a function, and a call of it.

    The functions stand where they are called, with the attributes ``Composite``, the pattern's name
    in the table, and ``PartitionedFromPattern``, the operators inside.

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

    Notes
    -----
    The source is Relay's `src/relay/transforms/merge_composite.cc`.
    """

    def __init__(self, pattern_table: Sequence[Entry]) -> None:
        self.table = [_entry(entry) for entry in pattern_table]

    def transform_module(self, mod: ir.IRModule, ctx: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return change_bodies(mod, self.merge)

    def merge(self, body: relax.Expr) -> relax.Expr:
        """Rewrite a graph."""
        for name, pattern, check in self.table:
            body = partition(pattern, body, {"Composite": name}, check)
        return body


def _entry(entry: Any) -> tuple[str, DFPattern, Callable[[relax.Expr], Any]]:
    """Take an entry of a pattern table apart."""
    parts = list(entry) if isinstance(entry, (tuple, list)) else []
    if len(parts) == 2:
        parts.append(lambda extracted: True)
    if len(parts) == 3 and isinstance(parts[1], DFPattern) and callable(parts[2]):
        return str(parts[0]), parts[1], parts[2]
    raise RelayError(
        "a pattern table holds (name, pattern) and (name, pattern, check)",
        where=f"MergeComposite: {entry!r}"[:200],
        fix="make patterns with tvmlab.relay.dataflow_pattern",
    )
