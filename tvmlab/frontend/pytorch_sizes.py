"""Sizes of an exported program, and slices between them.

PyTorch knows the bounds of open sizes, which tell whether a slice such as ``x[:, : n - 1]`` needs
clamps. `tvmlab.indices.CheckIndices` checks its size again when the model runs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax import op

__all__ = ["bounded", "open_sizes", "size_of", "sliced"]


def open_sizes(node: Any, importer: Any) -> dict[str, tirx.Var]:
    """Return the open sizes of the inputs of a node's program, by their names."""
    inputs = [importer.env[one].ty for one in node.graph.find_nodes(op="placeholder")]
    return {
        size.name: size
        for type_ in inputs
        if isinstance(type_, relax.TensorType)
        for size in type_.shape.values
        if isinstance(size, tirx.Var)
    }


def bounded(
    known: Mapping[str, tirx.Var], bounds: Mapping[str, tuple[int, int]]
) -> tvm.sym.Analyzer:
    """Return an analyzer that knows the bounds of open sizes."""
    analyzer = tvm.sym.Analyzer()
    for name, (low, high) in bounds.items():
        if name in known:
            analyzer.bind(known[name], tvm.ir.Range(low, high + 1))
    return analyzer


def size_of(size: Any, known: Mapping[str, Any]) -> Any:
    """Convert a size of PyTorch's; None for an expression other than sums and products."""
    if isinstance(size, int):
        return tirx.const(size, "int64")

    def value(expr: Any) -> Any:
        if expr.is_Integer:
            return tirx.const(int(expr), "int64")
        if expr.is_Symbol:
            return known.get(str(expr))
        parts = [value(part) for part in expr.args] if expr.is_Add or expr.is_Mul else [None]
        if any(part is None for part in parts):
            return None
        return functools.reduce(operator.add if expr.is_Add else operator.mul, parts)

    return value(size.node.expr)


def sliced(bounds: Mapping[str, tuple[int, int]], node: Any, importer: Any) -> relax.Var:
    """Convert a slice without clamps if it is inside its axis for all sizes in the bounds."""
    given: list[Any] = [*node.args, *(0, None, None, 1)[len(node.args) - 1 :]]
    source, axis, *ends, step = given
    value, known = source.meta["val"], open_sizes(node, importer)
    axis, analyzer = axis % value.dim(), bounded(known, bounds)
    whole = size_of(value.shape[axis], known)
    begin, end = (getattr(one, "meta", {"val": one})["val"] for one in ends)
    first, last = (
        None if size is None or whole is None else size_of(size, known)
        for size in (0 if begin is None else begin, 2**63 - 1 if end is None else end)
    )
    if first is None or last is None or not isinstance(step, int):
        return _by_upstream(node, importer, axis, given)
    first, last = (one + whole if analyzer.can_prove(one < 0) else one for one in (first, last))
    last = whole if analyzer.can_prove(last >= whole) else last
    inside = (first >= 0, first <= last, last <= whole)
    if not all(map(analyzer.can_prove, inside)):
        return _by_upstream(node, importer, axis, given)
    x = importer.env[source]
    if step == 1 and analyzer.can_prove_equal(last - first, whole):
        return x
    made = op.strided_slice(x, [axis], [first], [last], [step], assume_inbound=True)
    return importer.block_builder.emit(made)


def _by_upstream(node: Any, importer: Any, axis: int, given: Sequence[Any]) -> relax.Var:
    node.args = (given[0], axis, *given[2:])  # TVM counts no axes from the end
    made: relax.Var = importer._slice(node)
    return made
