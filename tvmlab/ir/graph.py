"""Relay's form of a function and Relax's: a graph of shared calls, and a list of bindings.

In Relay a body is one expression, whose calls have calls as arguments, and sharing is the same
object used twice. In Relax each call is bound to a variable. Code written for Relay looks at
`call.args[0]` and expects the producer there, so `tvmlab.relay`'s functions work on graphs: plain
Relax expressions, nested, typed and shared. Both ways are loops, not recursion, so depth is free.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import ir, relax

from ..errors import RelayError


def key(expr: relax.Expr | ir.Type) -> int:
    """Give an object's identity: equal for two Python names of the same node."""
    return int(expr.__chandle__())


def children(expr: relax.Expr) -> list[relax.Expr]:
    """List what an expression is made of, a call's operator first; functions are leaves.

    A branch of an `if` counts where it is a graph (see `branches`), and is a leaf where it still
    has bindings.
    """
    if isinstance(expr, relax.Call):
        head = [] if isinstance(expr.op, ir.Op) else [expr.op]
        return [*head, *expr.args]
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relax.If):
        return [expr.cond, *branches(expr)]
    return []


def branches(expr: relax.If) -> list[relax.Expr]:
    """Give the two branches of an `if` where both are graphs, else nothing."""
    both = [expr.true_branch, expr.false_branch]
    return [] if any(branch.blocks for branch in both) else [branch.body for branch in both]


def post_order(root: relax.Expr) -> Iterator[relax.Expr]:
    """Walk a graph, each node once, what a node is made of before the node."""
    seen: set[int] = set()
    stack: list[tuple[relax.Expr, bool]] = [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif key(expr) not in seen:
            seen.add(key(expr))
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(children(expr)))


def rebuild(expr: relax.Expr, new: Sequence[relax.Expr], infer: bool = True) -> relax.Expr:
    """Make an expression again from other children, the same object where none differs."""
    old = children(expr)
    if all(a.same_as(b) for a, b in zip(old, new, strict=True)):
        return expr
    made: relax.Expr
    if isinstance(expr, relax.Call):
        op = expr.op if isinstance(expr.op, ir.Op) else new[0]
        args = new if isinstance(expr.op, ir.Op) else new[1:]
        made = relax.Call(op, list(args), expr.attrs, expr.ty_args)
    elif isinstance(expr, relax.Tuple):
        made = relax.Tuple(list(new))
    elif isinstance(expr, relax.TupleGetItem):
        made = relax.TupleGetItem(new[0], expr.index)
    else:
        both = new[1:] or [expr.true_branch, expr.false_branch]
        made = relax.If(new[0], *both)
    return typed(made) if infer else made


def transform(
    root: relax.Expr, change: Callable[[relax.Expr, relax.Expr], relax.Expr], infer: bool = True
) -> Any:
    """Rebuild a graph from its leaves up.

    Parameters
    ----------
    root : tvm.relax.Expr
        The graph.
    change : callable
        ``change(before, after)`` gets each node as it was and with its children changed already,
        and gives what takes its place.
    infer : bool
        Whether to find types; without, what is made anew has none.
    """
    done: dict[int, relax.Expr] = {}
    for expr in post_order(root):
        after = rebuild(expr, [done[key(child)] for child in children(expr)], infer)
        done[key(expr)] = change(expr, after)
    return done[key(root)]


def typed(expr: relax.Expr) -> relax.Expr:
    """Infer the type of a call from its arguments', in place.

    Where an argument's type is unknown (a `relay.var` with a name alone), so is the result's.
    """
    if isinstance(expr, relax.If) and not known(expr) and all(map(known, branches(expr))):
        sides = [branch.ty for branch in branches(expr)]
        if sides:
            relax.expr._update_type(expr, relax.analysis.type_lca(*sides))
    if not isinstance(expr, relax.Call) or known(expr):
        return expr
    if all(known(arg) for arg in expr.args):
        if isinstance(expr.op, ir.Op):
            infer = expr.op.get_attr("FInferType")
            relax.expr._update_type(expr, infer(expr, _BUILDER))
        elif isinstance(expr.op.ty, relax.FuncType) and tells(expr.op.ty.ret):
            relax.expr._update_type(expr, expr.op.ty.ret)
    return expr


def known(expr: relax.Expr) -> bool:
    """Say whether an expression has a type that says something."""
    return tells(expr.ty)


def tells(kind: ir.Type | None) -> bool:
    """Say whether a type says something: `UNKNOWN` and Relax's type of any value do not."""
    if isinstance(kind, relax.TensorType):
        return kind.ndim >= 0 or kind.dtype is not None
    return kind is not None and type(kind) not in (ir.Type, relax.AnyType)


def to_graph(function: relax.Function) -> relax.Expr:
    """Turn a function's bindings into one graph.

    Parameters
    ----------
    function : tvm.relax.Function
        Its bindings may stand in dataflow blocks or not; nested functions stay as they are.

    Returns
    -------
    tvm.relax.Expr
        The result, a graph over the parameters. A binding that nothing uses is gone.
    """
    return inline(function.body)


def inline(body: relax.Expr) -> relax.Expr:
    """Turn a sequence of bindings into one graph over what it leaves free.

    Branches of an `if` become graphs too, by recursion: only nesting of branches costs depth.
    """
    if not isinstance(body, relax.SeqExpr):
        return body
    values: dict[int, relax.Expr] = {}

    def leaf(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.If) and not branches(after):
            sides = [inline(after.true_branch), inline(after.false_branch)]
            after = typed(relax.If(after.cond, *(transform(side, leaf) for side in sides)))
        return values.get(key(after), after)

    for block in body.blocks:
        for binding in block.bindings:
            values[key(binding.var)] = transform(binding.value, leaf)
    return transform(body.body, leaf)


def result(body: relax.Expr) -> relax.Expr:
    """Find what a function's body computes last, without turning it into a graph.

    Parameters
    ----------
    body : tvm.relax.Expr
        Bindings, or a graph.

    Returns
    -------
    tvm.relax.Expr
        The value bound to the result; the body itself where what follows its bindings is no
        variable of theirs, as in a `let`.
    """
    while isinstance(body, relax.SeqExpr):
        values = {key(one.var): one.value for block in body.blocks for one in block.bindings}
        if values and key(body.body) not in values:
            return body
        inner = body.body
        while key(inner) in values:
            inner = values.pop(key(inner))
        body = inner
    return body


def from_graph(
    params: Sequence[relax.Var],
    body: relax.Expr,
    attrs: dict[str, Any] | ir.DictAttrs | None = None,
) -> relax.Function:
    """Turn a graph into a function with one binding a call.

    Parameters
    ----------
    params : sequence of tvm.relax.Var
        The parameters, typed.
    body : tvm.relax.Expr
        The graph; what is shared in it is bound once.
    attrs : dict or tvm.ir.DictAttrs, optional
        The function's attributes.

    Returns
    -------
    tvm.relax.Function
        All in one dataflow block, unless it holds nested functions or branches, which Relax allows
        outside of one only.
    """
    nodes = list(post_order(body))
    plain = not any(isinstance(node, (relax.Function, relax.If)) for node in nodes)
    homes = {} if plain else _homes(nodes)
    inner: dict[Branch, list[relax.Binding]] = {}
    builder = relax.BlockBuilder()
    done: dict[int, relax.Expr] = {}

    def bind(new: relax.Expr, home: Branch) -> relax.Expr:
        if not home:
            return builder.emit(new)
        new = builder.normalize(new)
        var = relax.Var(f"lv{len(done)}", new.ty)
        inner.setdefault(home, []).append(relax.VarBinding(var, new))
        return var

    with builder.function("main", list(params)):
        with builder.dataflow() if plain else contextlib.nullcontext():
            for node in nodes:
                home = homes.get(key(node), ())
                if isinstance(node, relax.If) and branches(node):
                    sides = []
                    for side, value in zip((1, 2), branches(node), strict=True):
                        held = inner.pop((*home, (key(node), side)), None)
                        blocks = [relax.BindingBlock(held)] if held else []
                        sides.append(relax.SeqExpr(blocks, done[key(value)]))
                    new: relax.Expr = relax.If(done[key(node.cond)], *sides)
                else:
                    new = rebuild(node, [done[key(child)] for child in children(node)])
                if isinstance(node, relax.Function) and not node.body.blocks:
                    new = from_graph(node.params, inline(node.body), node.attrs)
                if isinstance(node, (relax.Call, relax.TupleGetItem, relax.Function, relax.If)):
                    last = plain and node.same_as(body)
                    new = builder.emit_output(new) if last else bind(new, home)
                done[key(node)] = new
            result = done[key(body)]
            # Bound without a dataflow block too, as the reader of Relay's text has it.
            if not isinstance(result, relax.Var):
                result = builder.emit_output(result) if plain else builder.emit(result)
        builder.emit_func_output(result)
    function = builder.get()["main"]
    function = function.without_attr("global_symbol")
    return function.with_attrs(dict(attrs.items())) if attrs else function


UNKNOWN = relax.TensorType(None, None)
"""The type of a parameter that Relay was given without one: a tensor, no more is known."""


MAX_SCOPES = 50
"""How deep functions and branches may nest in one another."""


def check_scopes(depth: int) -> None:
    """Refuse functions and branches that nest deeper than `MAX_SCOPES` levels."""
    if depth > MAX_SCOPES:
        raise RelayError(
            f"functions or branches nest deeper than {MAX_SCOPES} levels",
            where="a function's body",
            fix="call functions of the module in place of nested ones",
        )


Branch = tuple[tuple[int, int], ...]
"""Where a node is computed: the branches around it, from the outermost; each an `if` and a side."""


def _homes(nodes: Sequence[relax.Expr]) -> dict[int, Branch]:
    """Find the innermost branch that holds all uses of each node, given in post-order."""
    homes: dict[int, Branch] = {key(nodes[-1]): ()}
    for node in reversed(nodes):
        home = homes[key(node)]
        inside = isinstance(node, relax.If)
        if inside:
            check_scopes(len(home) + 1)
        for side, child in enumerate(children(node)):
            use = (*home, (key(node), side)) if inside and side else home
            known_use = homes.get(key(child), use)
            shared = 0
            while shared < min(len(use), len(known_use)) and use[shared] == known_use[shared]:
                shared += 1
            homes[key(child)] = use[:shared]
    return homes


_BUILDER = relax.BlockBuilder()
