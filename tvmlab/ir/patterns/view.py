"""How Relay sees a Relax graph: calls by Relay's names, bodies and branches as parts of it.

One Relay call is one Relax call, but not always with the same operands: the value that `nn.pad`
pads with is an attribute in Relax, the shape of a `reshape` an operand. Patterns are written for
Relay's side, so they are matched on what `table` says a call is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from .. import dialect, graph, table
from ..graph import key


@dataclass(frozen=True)
class Head:
    """The operator of a call, with the name that Relay has for it in that call."""

    op: ir.Op
    names: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """A call as Relay sees it.

    Attributes
    ----------
    head : Head or tvm.relax.Expr
        The operator, or the function that is called.
    operands : list of tvm.relax.Expr
        Relay's operands. One that Relax keeps as an attribute is a constant made for it.
    attributes : dict
        Relay's attributes, all of them.
    row : Operator or None
        The operator's row in the table.
    """

    head: Head | relax.Expr
    operands: list[relax.Expr]
    attributes: dict[str, Any]
    row: table.Operator | None


def names_of(op: ir.Op) -> frozenset[str]:
    """Give Relay's names of a Relax operator; one that Relay lacks keeps its own."""
    return table.relay_names(op.name) or frozenset([_own_name(op)])


def _own_name(op: ir.Op) -> str:
    return str(op.name).removeprefix("relax.").removeprefix("relay.")


def see(call: relax.Call) -> Seen:
    """See a call as Relay does."""
    if not isinstance(call.op, ir.Op):
        values = dialect.attributes(call) if isinstance(call.attrs, ir.DictAttrs) else {}
        return Seen(call.op, list(call.args), values, None)
    found = table.written(call)
    if found is None:
        return Seen(Head(call.op, frozenset([_own_name(call.op)])), list(call.args), {}, None)
    row, operands, values = found
    return Seen(Head(call.op, frozenset([row.name])), list(operands), values, row)


def binding(expr: relax.Expr) -> relax.VarBinding | None:
    """Give the binding of a let: a sequence of one binding that is no body of a function's."""
    if not isinstance(expr, relax.SeqExpr) or len(expr.blocks) != 1:
        return None
    block = expr.blocks[0]
    if isinstance(block, relax.DataflowBlock) or len(block.bindings) != 1:
        return None
    only = block.bindings[0]
    # A function or a branch keeps a body out of a dataflow block: that is no let of anybody's.
    return None if isinstance(only.value, (relax.Function, relax.If)) else only


def body_of(expr: relax.Expr) -> relax.Expr:
    """Take the graph out of the sequence that Relax keeps bodies and branches in."""
    while isinstance(expr, relax.SeqExpr) and not expr.blocks:
        expr = expr.body
    return expr


class View:
    """The parts of each expression of a graph, as Relay has them; each call is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._held: list[relax.Expr] = []

    def call(self, call: relax.Call) -> Seen:
        """See a call as Relay does, the same way each time."""
        found = self._seen.get(key(call))
        if found is None:
            found = self._seen[key(call)] = see(call)
            self._held.append(call)
        return found

    def parts(self, expr: relax.Expr) -> list[relax.Expr]:
        """List what an expression is made of, in the order in which Relay visits it."""
        # By the exact class: `isinstance` of Relax's abstract classes would take most of the time.
        kind = type(expr)
        if kind is relax.Call:
            seen = self.call(expr)
            return seen.operands if type(seen.head) is Head else [seen.head, *seen.operands]
        if kind is relax.Tuple:
            return list(expr.fields)
        if kind is relax.TupleGetItem:
            return [expr.tuple_value]
        if kind is relax.If:
            return [expr.cond, body_of(expr.true_branch), body_of(expr.false_branch)]
        if kind is relax.Function:
            return [body_of(expr.body)]
        if kind is relax.SeqExpr:
            bound = binding(expr)
            return (
                [body_of(expr)] if bound is None else [bound.value, bound.var, body_of(expr.body)]
            )
        return []

    def order(self, root: relax.Expr, leaves: frozenset[int] = frozenset()) -> list[relax.Expr]:
        """List a graph's expressions, parts before the whole; not what `leaves` are made of."""
        seen: set[int] = set()
        order: list[relax.Expr] = []
        stack: list[tuple[relax.Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                order.append(expr)
            elif key(expr) not in seen:
                seen.add(key(expr))
                stack.append((expr, True))
                if key(expr) not in leaves:
                    stack.extend((part, False) for part in reversed(self.parts(expr)))
        return order

    def rebuild(self, expr: relax.Expr, new: Sequence[relax.Expr]) -> relax.Expr:
        """Make an expression again from other parts, the same object where none differs."""
        old = self.parts(expr)
        if all(a.same_as(b) for a, b in zip(old, new, strict=True)):
            return expr
        if isinstance(expr, relax.Function):
            return function(expr.params, new[0], expr.attrs, pure=bool(expr.is_pure))
        if isinstance(expr, relax.If):
            return relax.If(*new)
        if isinstance(expr, relax.SeqExpr):
            block = relax.BindingBlock([relax.VarBinding(new[1], new[0])])
            return relax.SeqExpr([block], new[2])
        seen = self.call(expr) if isinstance(expr, relax.Call) else None
        if seen is None or seen.row is None:
            return graph.rebuild(expr, new)
        changed = {key(a): b for a, b in zip(old, new, strict=True) if not a.same_as(b)}
        if changed.keys() <= {key(arg) for arg in expr.args}:
            args = [changed.get(key(arg), arg) for arg in expr.args]
            return graph.typed(relax.Call(expr.op, args, expr.attrs, expr.ty_args))
        return typed(seen.row.read(list(new), seen.attributes))


def function(
    params: Sequence[relax.Var],
    body: relax.Expr,
    attrs: Any = None,
    *,
    pure: bool = True,
) -> relax.Function:
    """Make a function of a graph; its result's type is the body's, if that has one."""
    result = None if graph.known(body) else relax.AnyType()
    kept = attrs if isinstance(attrs, ir.DictAttrs) else ir.DictAttrs(dict(attrs or {}))
    return relax.Function(list(params), body, result, pure, kept)


def typed(expr: relax.Expr) -> relax.Expr:
    """Infer the types of what is new in a graph: what stands above typed expressions."""
    stack, seen = [(expr, False)], set()
    while stack:
        node, ready = stack.pop()
        if ready:
            graph.typed(node)
        elif key(node) not in seen and not graph.known(node):
            seen.add(key(node))
            stack.append((node, True))
            stack.extend((child, False) for child in graph.children(node))
    return expr


def to_graph(expr: relax.Expr, bound: dict[int, relax.Expr] | None = None) -> relax.Expr:
    """Turn all bindings under an expression into a graph: bodies, branches, nested functions.

    Parameters
    ----------
    expr : tvm.relax.Expr
        Bindings, a graph, or both. A let that was built as an expression stays one.
    bound : dict
        What the variables stand for that are bound around the expression.

    Returns
    -------
    tvm.relax.Expr
        The same object where there was nothing to do.
    """
    values = dict(bound or {})
    if not values and _is_graph(expr):
        return body_of(expr)
    # A chain of lets is a loop: only the nesting of scopes costs depth.
    lets: list[tuple[relax.Expr, relax.Expr]] = []
    while (only := binding(expr)) is not None:
        lets.append((expr, _without_bindings(only.value, values)))
        expr = expr.body
    made = _without_bindings(expr, values)
    for let, value in reversed(lets):
        made = View().rebuild(let, [value, let.blocks[0].bindings[0].var, made])
    return made


def _without_bindings(expr: relax.Expr, values: dict[int, relax.Expr]) -> relax.Expr:
    """Do what `to_graph` does, for what is no let itself."""
    if binding(expr) is not None:
        return to_graph(expr, values)
    values = dict(values)

    def change(before: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(before, relax.Function):
            body = to_graph(before.body, values)
            if body.same_as(body_of(before.body)):
                return before
            return function(before.params, body, before.attrs, pure=bool(before.is_pure))
        if isinstance(before, relax.If):
            branches = [to_graph(b, values) for b in (before.true_branch, before.false_branch)]
            old = [body_of(b) for b in (before.true_branch, before.false_branch)]
            if all(a.same_as(b) for a, b in zip(old, branches, strict=True)):
                return after
            return relax.If(after.cond, *branches)
        if isinstance(before, relax.SeqExpr):
            return to_graph(before, values)
        return values.get(key(before), after)

    if isinstance(expr, relax.SeqExpr):
        for block in expr.blocks:
            for one in block.bindings:
                values[key(one.var)] = graph.transform(one.value, change)
        return to_graph(expr.body, values)
    return graph.transform(expr, change)


def _is_graph(root: relax.Expr) -> bool:
    """Say whether there are no bindings under an expression."""
    stack, seen = [root], set()
    while stack:
        expr = stack.pop()
        kind = type(expr)
        if kind is relax.Call:
            below = [*expr.args] if isinstance(expr.op, ir.Op) else [expr.op, *expr.args]
        elif kind is relax.SeqExpr:
            if expr.blocks:
                return False
            below = [expr.body]
        elif kind is relax.Function:
            below = [expr.body]
        elif kind is relax.If:
            below = [expr.cond, expr.true_branch, expr.false_branch]
        elif kind is relax.Tuple or kind is relax.TupleGetItem:
            below = [*expr.fields] if kind is relax.Tuple else [expr.tuple_value]
        else:
            continue
        for part in below:
            if key(part) not in seen:
                seen.add(key(part))
                stack.append(part)
    return True


def has_bindings(function: relax.Function) -> bool:
    """Say whether a function's body is bindings and not a graph."""
    return bool(function.body.blocks) and binding(function.body) is None


def in_form_of(given: relax.Expr, root: relax.Expr, result: relax.Expr) -> Any:
    """Give a result back in the form that the expression was given in.

    Parameters
    ----------
    given : tvm.relax.Expr
        What was given.
    root : tvm.relax.Expr
        Its graph.
    result : tvm.relax.Expr
        What became of the graph.

    Returns
    -------
    tvm.relax.Expr
        What was given, if nothing changed; bindings for a function with bindings, else the graph.
    """
    if result.same_as(root):
        return given
    bound = isinstance(given, relax.Function) and has_bindings(given)
    if bound and isinstance(result, relax.Function):
        return graph.from_graph(result.params, body_of(result.body), result.attrs)
    return result
