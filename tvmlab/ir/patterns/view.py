"""Relay's view of a Relax graph: calls by Relay's names, bodies and branches as parts of a node.

Patterns are written for Relay's operands and attributes, so they are matched against the Relay
call that `table` reads from a Relax call. For example, only Relax has a `reshape`'s shape operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph, table
from ..graph import body_of, key, let_binding
from ..module import infer_type


@dataclass(frozen=True)
class OperatorName:
    """The operator of a call, with its Relay name in this call."""

    op: ir.Op
    names: frozenset[str]

    def same_as(self, other: object) -> bool:
        """Compare like expressions."""
        return self == other


class RelayCall(NamedTuple):
    """A call as Relay sees it: its operator or function, and Relay's operands and attributes."""

    head: OperatorName | relax.Expr
    operands: list[relax.Expr]
    attributes: dict[str, Any]
    row: table.Operator | None = None


def names_of(op: ir.Op) -> frozenset[str]:
    """Return Relay's names of a Relax operator; an operator that Relay lacks keeps its own name."""
    return table.relay_names(op.name) or _own_names(op)


def _own_names(op: ir.Op) -> frozenset[str]:
    return frozenset([str(op.name).removeprefix("relax.").removeprefix("relay.")])


def is_partitioned(expr: relax.Expr) -> bool:
    """Return whether `partition` made a function, so that nothing inside is matched again."""
    return type(expr) is relax.Function and "PartitionedFromPattern" in (expr.attrs or {})


class View:
    """The parts of each expression of a graph in Relay's form; each call is read only once."""

    def __init__(self) -> None:
        # Keep the expressions of the cache alive, so that their addresses are not reused.
        self._calls: dict[int, tuple[relax.Call, RelayCall]] = {}
        self._parts: dict[int, tuple[relax.Expr, list[relax.Expr]]] = {}

    def call(self, call: relax.Call) -> RelayCall:
        """Read a call; the same call always returns the same `RelayCall`."""
        place = key(call)
        if place not in self._calls:
            found = table.written(call)
            if found is not None:
                row, operands, values = found
                head = OperatorName(call.op, frozenset([row.name]))
                made = RelayCall(head, list(operands), values, row)
            elif isinstance(call.op, ir.Op):
                made = RelayCall(OperatorName(call.op, _own_names(call.op)), call.args[:], {})
            else:
                values = dialect.attributes(call) if isinstance(call.attrs, ir.DictAttrs) else {}
                made = RelayCall(call.op, call.args[:], values)
            self._calls[place] = call, made
        return self._calls[place][1]

    def names(self, expr: relax.Expr) -> frozenset[str]:
        """Return Relay's names of the operator that an expression calls, or an empty set."""
        head = self.call(expr).head if type(expr) is relax.Call else None
        return head.names if isinstance(head, OperatorName) else frozenset()

    def parts(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the parts of an expression, in the order in which Relay visits them."""
        known = self._parts.get(place := key(expr))
        if known is None:
            known = self._parts[place] = expr, self._read_parts(expr)
        return known[1]

    def _read_parts(self, expr: relax.Expr) -> list[relax.Expr]:
        # Compare exact classes, because `isinstance` of Relax's abstract classes is slow.
        kind = type(expr)
        if kind is relax.Call:
            call = self.call(expr)
            if type(call.head) is OperatorName:
                return call.operands
            return [call.head, *call.operands]
        if kind is relax.If:
            return [expr.cond, body_of(expr.true_branch), body_of(expr.false_branch)]
        if kind is relax.Function:
            return [] if is_partitioned(expr) else [body_of(expr.body)]
        if kind is relax.SeqExpr:
            let = let_binding(expr)
            return [body_of(expr)] if let is None else [let.value, let.var, body_of(expr.body)]
        return graph.children(expr)

    def order(self, root: relax.Expr, leaves: frozenset[int] = frozenset()) -> list[relax.Expr]:
        """List a graph's expressions, parts first, without the parts of `leaves`."""
        parts = self.parts if not leaves else lambda e: [] if key(e) in leaves else self.parts(e)
        return [expr for expr, _ in graph.walk(root, parts)]

    def rebuild(self, expr: relax.Expr, new: Sequence[relax.Expr]) -> relax.Expr:
        """Rebuild an expression from other parts; return the same object if none differs."""
        old = self.parts(expr)
        if graph.same_nodes(old, new):
            return expr
        if isinstance(expr, relax.Function):
            return graph.function(expr.params, new[0], expr.attrs, pure=bool(expr.is_pure))
        if isinstance(expr, relax.SeqExpr):
            return graph.let(new[1], new[0], new[2])
        call = self.call(expr) if isinstance(expr, relax.Call) else None
        if call is None or call.row is None:
            return graph.rebuild(expr, new)
        changed = {key(a): b for a, b in zip(old, new, strict=True) if not a.same_as(b)}
        args = expr.args[:]
        if changed.keys() <= set(map(key, args)):
            return graph.rebuild(expr, [changed.get(key(arg), arg) for arg in args], old=args)
        return infer_type(call.row.to_relax(list(new), call.attributes))


def in_form_of(given: relax.Expr, root: relax.Expr, result: relax.Expr) -> Any:
    """Return a result in the same form as the input, whose graph is `root`."""
    if result.same_as(root):
        return given
    functions = isinstance(given, relax.Function) and isinstance(result, relax.Function)
    if functions and given.body.blocks and let_binding(given.body) is None:
        return graph.to_anf(result.params, body_of(result.body), result.attrs)
    return result


class DominatorTree:
    """The users of each expression in a graph, and the nearest user that all its uses lead to.

    The source is TVM's ``src/relay/ir/indexed_graph.{h,cc}``. Properties are computed on first use.
    """

    def __init__(self, root: relax.Expr, view: View) -> None:
        self.root, self.view = root, view

    @cached_property
    def order(self) -> list[relax.Expr]:
        """The graph's expressions, parts before their users."""
        return self.view.order(self.root)

    def calls(self, names: frozenset[str]) -> list[relax.Expr]:
        """List the calls of operators with these names, in order."""
        places = {place for name in names for place in self._calls.get(name, ())}
        return [self.order[place] for place in sorted(places)]

    @cached_property
    def _calls(self) -> dict[str, list[int]]:
        calls: dict[str, list[int]] = {}
        for place, expr in enumerate(self.order):
            for name in self.view.names(expr):
                calls.setdefault(name, []).append(place)
        return calls

    def inputs(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the inputs of an expression: not the called function, nor the values of a `let`."""
        if isinstance(expr, relax.Call):
            return self.view.call(expr).operands
        parts = self.view.parts(expr)
        return parts[2:] if isinstance(expr, relax.SeqExpr) else parts

    def users(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions that have an expression as a part."""
        return [self.order[place] for place in self._users[self._place[key(expr)]]]

    def dominates(self, expr: relax.Expr, other: relax.Expr) -> bool:
        """Return whether all uses of another expression lead to this one."""
        goal, place = self._place[key(expr)], self._place[key(other)]
        while place < goal:
            place = self._parents[place]
        return place == goal and not expr.same_as(other)

    def dominated(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions with this one as their nearest dominator, the last one first."""
        return [self.order[place] for place in self._children[self._place[key(expr)]]]

    @cached_property
    def _place(self) -> dict[int, int]:
        return {key(expr): place for place, expr in enumerate(self.order)}

    @cached_property
    def parts(self) -> list[list[int]]:
        """The indices in `order` of the parts of each expression."""
        places = self._place
        return [[places[key(part)] for part in self.view.parts(expr)] for expr in self.order]

    @cached_property
    def _users(self) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in self.order]
        for place, parts in enumerate(self.parts):
            if len(parts) == 3 and isinstance(self.order[place], relax.SeqExpr):
                value, var, body = parts
                users[value].append(var)
                parts = [body]
            for part in parts:
                users[part].append(place)
        return users

    @cached_property
    def _parents(self) -> list[int]:
        """List the indices of the nearest dominators, which come later; the end means none."""
        end = len(self.order)
        parents = [end] * (end + 1)
        for place in reversed(range(end)):
            users = [user for user in self._users[place] if user > place]
            parents[place] = users[0] if users else end
            for user in users[1:]:
                while user != parents[place]:
                    if user < parents[place]:
                        user = parents[user]
                    else:
                        parents[place] = parents[parents[place]]
        return parents

    @cached_property
    def _children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in range(len(self.order) + 1)]
        for place in reversed(range(len(self.order))):
            children[self._parents[place]].append(place)
        return children


# The kinds of fusion, with the numbers of TVM's include/tvm/relay/op_attr_types.h.
_ELEMENTWISE = """
    abs acos acosh asin asinh atan atanh bitwise_not cast ceil clip copy cos cosh erf exp floor
    isfinite isinf isnan log log10 log2 logical_not negative nn.leaky_relu nn.relu ones_like
    qnn.dequantize qnn.quantize qnn.requantize qnn.tanh round rsqrt sigmoid sign sin sinh sqrt
    tan tanh trunc zeros_like
"""
_BROADCAST = """
    add bitwise_and bitwise_or bitwise_xor broadcast_to divide equal expand_dims floor_divide
    floor_mod greater greater_equal left_shift less less_equal logical_and logical_or
    logical_xor maximum minimum mod multiply nn.bias_add nn.prelu not_equal power right_shift
    subtract where
"""
_INJECTIVE = """
    concatenate gather gather_nd layout_transform nn.batch_flatten nn.pad nn.upsampling
    qnn.concatenate repeat reshape reverse split squeeze stack strided_slice take tile transpose
"""
_REDUCTION = "all any argmax argmin max mean min prod sum variance"
_FUSABLE = """
    nn.adaptive_avg_pool2d nn.adaptive_max_pool2d nn.avg_pool2d nn.batch_matmul nn.batch_norm
    nn.conv1d nn.conv2d nn.conv2d_transpose nn.conv3d nn.dense nn.global_avg_pool2d
    nn.global_max_pool2d nn.log_softmax nn.matmul nn.max_pool2d nn.softmax qnn.batch_matmul
"""

_KINDS = {
    name: kind
    for kind, names in enumerate((_ELEMENTWISE, _BROADCAST, _INJECTIVE, _REDUCTION, _FUSABLE))
    for name in names.split()
}


def fusion_kind(names: Iterable[str], attribute: str) -> int | None:
    """Return ``TOpPattern`` of the operator with these names; None for a function's attribute."""
    if not re.match(r"[TF][A-Z]|target\.", attribute):
        return None
    kinds = {_KINDS.get(name) for name in names}
    if attribute != "TOpPattern" or len(kinds) != 1 or None in kinds:
        what = f"The attribute {attribute!r} of {' or '.join(sorted(names))} is not known."
        fix = 'Use "TOpPattern", or list the operators: is_op("a") | is_op("b").'
        raise RelayError(what, where="has_attr", fix=fix)
    return kinds.pop()
