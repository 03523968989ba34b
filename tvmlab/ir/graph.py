"""Functions in Relay's form and in Relax's: a graph of shared calls, and a list of bindings.

In Relay a body is one expression, whose calls have calls as arguments. In Relax each call is bound
to a variable. `tvmlab.relay` works on graphs of Relax expressions. The functions here walk graphs
with loops, so graphs can be deep; TVM walks types and scopes recursively, so these have limits.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ..errors import RelayError


def key(expr: relax.Expr | ir.Type) -> int:
    """Return an object's identity: equal for two Python names of the same node."""
    return expr.__chandle__()  # type: ignore[no-any-return]


def children(expr: relax.Expr) -> list[relax.Expr]:
    """List an expression's parts, a call's operator first; functions and bindings are leaves."""
    # Compare exact classes, because `isinstance` of an abstract class costs more than the rest.
    kind = type(expr)
    if kind is relax.Call:
        args: list[relax.Expr] = expr.args[:]  # a slice is one call into TVM, an iterator many
        return args if type(expr.op) is ir.Op else [expr.op, *args]
    if kind is relax.Tuple:
        fields: list[relax.Expr] = expr.fields[:]
        return fields
    if kind is relax.TupleGetItem:
        return [expr.tuple_value]
    return [expr.cond, *branches(expr)] if kind is relax.If else []


def branches(expr: relax.If) -> list[relax.Expr]:
    """Return the two branches of an `if` if both are graphs, else an empty list."""
    both = [expr.true_branch, expr.false_branch]
    return [] if any(branch.blocks for branch in both) else [branch.body for branch in both]


def body_of(expr: relax.Expr) -> relax.Expr:
    """Return the graph inside the sequence that Relax wraps around bodies and branches."""
    while isinstance(expr, relax.SeqExpr) and not expr.blocks:
        expr = expr.body
    return expr


def post_order(
    root: relax.Expr, parts: Callable[[relax.Expr], list[relax.Expr]] = children
) -> Iterator[relax.Expr]:
    """Walk a graph, each node once, after its parts."""
    return (expr for expr, _ in walk(root, parts))


def walk(
    root: relax.Expr, parts: Callable[[relax.Expr], list[relax.Expr]] = children
) -> Iterator[tuple[relax.Expr, list[relax.Expr]]]:
    """Walk a graph in the order of `post_order`; yield each node with its parts."""
    seen: set[int] = set()
    stack: list[tuple[relax.Expr, list[relax.Expr] | None]] = [(root, None)]
    while stack:
        expr, inner = stack.pop()
        if inner is not None:
            yield expr, inner
        elif (place := key(expr)) not in seen:
            seen.add(place)
            inner = parts(expr)
            if not inner:
                yield expr, inner
                continue
            stack.append((expr, inner))
            stack.extend([(child, None) for child in reversed(inner)])


def same_nodes(old: Sequence[relax.Expr], new: Sequence[relax.Expr]) -> bool:
    """Return whether two lists contain the same objects."""
    return len(old) == len(new) and all(
        a is b or a.same_as(b) for a, b in zip(old, new, strict=True)
    )


def rebuild(
    expr: relax.Expr,
    new: Sequence[relax.Expr],
    infer: bool = True,
    old: Sequence[relax.Expr] | None = None,
) -> relax.Expr:
    """Rebuild an expression from other children; return the same object if none differs.

    `old` contains its children if they are known, because reading them from TVM is slow.
    """
    old = children(expr) if old is None else old
    if same_nodes(old, new):
        return expr
    made: relax.Expr
    kind = type(expr)
    if kind is relax.Call:
        head, args = ([expr.op], new) if type(expr.op) is ir.Op else (new[:1], new[1:])
        made = relax.Call(head[0], list(args), expr.attrs, expr.ty_args)
    elif kind is relax.Tuple:
        made = relax.Tuple(list(new))
    elif kind is relax.TupleGetItem:
        made = relax.TupleGetItem(new[0], expr.index)
    else:
        both = new[1:] or [expr.true_branch, expr.false_branch]
        made = relax.If(new[0], *both)
    if not infer:
        return made
    if made.ty.is_missing() and has_type(expr) and _same_types(old, new):
        relax.expr._update_type(made, expr.ty)
    return typed(made)


def _same_types(old: Sequence[relax.Expr], new: Sequence[relax.Expr]) -> bool:
    """Return whether only computed values were replaced, by values of the same types."""
    return len(old) == len(new) and all(
        a.same_as(b)
        or (
            type(a) in _COMPUTED
            and type(b) in _COMPUTED
            and (a.ty.same_as(b.ty) or tvm_ffi.structural_equal(a.ty, b.ty))
        )
        for a, b in zip(old, new, strict=True)
    )


_COMPUTED = (relax.Call, relax.Var, relax.DataflowVar, relax.TupleGetItem)


def transform(
    root: relax.Expr, change: Callable[[relax.Expr, relax.Expr], relax.Expr], infer: bool = True
) -> Any:
    """Rebuild a graph from its leaves up, replacing each node by ``change(before, after)``."""
    done: dict[int, relax.Expr] = {}
    for expr, old in walk(root):
        after = rebuild(expr, [done[key(child)] for child in old], infer, old) if old else expr
        done[key(expr)] = change(expr, after)
    return done[key(root)]


def typed(expr: relax.Expr) -> relax.Expr:
    """Infer the type of one node in place if the types of all its parts are known."""
    if type(expr.ty) not in (type(None), ir.Type):  # TVM sets a type only once
        return expr
    parts = branches(expr) if isinstance(expr, relax.If) else children(expr)
    if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
        if all(map(has_type, parts)):
            infer = expr.op.get_attr("FInferType")
            relax.expr._update_type(expr, infer(expr, _BUILDER))
    elif isinstance(expr, relax.Call):
        result = expr.op.ty.ret if isinstance(expr.op.ty, relax.FuncType) else None
        if all(map(has_type, expr.args)) and tells(result):
            relax.expr._update_type(expr, result)
    elif isinstance(expr, relax.If):
        if parts and all(map(has_type, parts)):
            relax.expr._update_type(expr, relax.analysis.type_lca(*[part.ty for part in parts]))
    elif isinstance(expr, relax.Tuple):
        if all(not isinstance(field, ir.Op) and has_type(field) for field in parts):
            relax.expr._update_type(expr, relax.TupleType([field.ty for field in parts]))
    elif isinstance(expr, relax.TupleGetItem) and isinstance(expr.tuple_value.ty, ir.TupleType):
        relax.expr._update_type(expr, expr.tuple_value.ty.fields[expr.index])
    return expr


def is_call(expr: object, *names: str) -> bool:
    """Return whether an expression calls one of these operators."""
    return (
        isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op) and str(expr.op.name) in names
    )


def bound(expr: relax.Expr, builder: relax.BlockBuilder) -> Any:
    """Return what a variable is bound to in the function that is being built, if it is bound."""
    while isinstance(expr, relax.Var) and (value := builder.lookup_binding(expr)) is not None:
        expr = value
    return expr


def has_type(expr: relax.Expr) -> bool:
    """Return whether the type of an expression is at least partly known."""
    return tells(expr.ty)


def tells(kind: ir.Type | None) -> bool:
    """Return whether a type is at least partly known; `UNKNOWN` and Relax's ``Any`` are not."""
    if isinstance(kind, relax.TensorType):
        return kind.ndim >= 0 or kind.dtype is not None
    return kind is not None and type(kind) not in (ir.Type, relax.AnyType)


def function(
    params: Sequence[relax.Var], body: relax.Expr, attrs: Any = None, *, pure: bool = True
) -> relax.Function:
    """Make a function of a graph; its result has the type of the body, if the body has one."""
    kept = attrs if isinstance(attrs, ir.DictAttrs) else ir.DictAttrs(dict(attrs or {}))
    return relax.Function(list(params), body, result_type(body), pure, kept)


def result_type(body: relax.Expr) -> ir.Type | None:
    """Return the declared type of a function's result, or None if Relax infers the type."""
    if has_type(body):
        return None
    inner = body.body if isinstance(body, relax.SeqExpr) else body
    return inner.ty if has_type(inner) else relax.AnyType()


def let(var: relax.Var, value: relax.Expr, body: relax.Expr) -> relax.SeqExpr:
    """Make a `let`: one binding as a separate expression."""
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, value)])], body)


def let_binding(expr: relax.Expr) -> relax.VarBinding | None:
    """Return the binding of a `let`: a sequence of one binding that is not a function's body."""
    if not isinstance(expr, relax.SeqExpr) or len(expr.blocks) != 1:
        return None
    block = expr.blocks[0]
    if isinstance(block, relax.DataflowBlock) or len(block.bindings) != 1:
        return None
    only = block.bindings[0]
    # Relax keeps functions and branches out of dataflow blocks, so these sequences are bodies.
    return None if isinstance(only.value, (relax.Function, relax.If)) else only


def inline_bindings(expr: relax.Expr, functions: bool = False) -> relax.Expr:
    """Turn bindings, including nested ones, into one graph over their free variables.

    With `functions` the bodies of functions also become graphs, and each `let` is kept.
    """
    values: dict[int, relax.Expr] = {}
    done: dict[int, relax.Expr] = {}
    unfinished: set[int] = set()

    def kept_let(node: relax.Expr) -> relax.VarBinding | None:
        return let_binding(node) if functions else None

    def parts(node: relax.Expr) -> list[relax.Expr]:
        if type(node) in (relax.Call, ir.GenericConst):
            return children(node)
        if isinstance(node, relax.SeqExpr):
            kept = kept_let(node)
            return [node.body] if kept is None else [kept.value, node.body]
        if isinstance(node, relax.Var):
            return [values[key(node)]] if key(node) in values else []
        if isinstance(node, relax.If):
            return [node.cond, node.true_branch, node.false_branch]
        if isinstance(node, relax.Function):
            return [node.body] if functions else []
        return children(node)

    def inlined(node: relax.Expr, inner: list[relax.Expr], new: list[relax.Expr]) -> relax.Expr:
        if not inner or type(node) is relax.Call:
            return rebuild(node, new, old=inner)
        if isinstance(node, relax.Var):
            return new[0]
        if isinstance(node, relax.SeqExpr):
            kept = kept_let(node)
            if kept is None:
                return new[0]
            old = [kept.value, body_of(node.body)]
            return node if same_nodes(old, new) else let(kept.var, *new)
        if isinstance(node, relax.If):
            old = [node.cond, body_of(node.true_branch), body_of(node.false_branch)]
            return node if same_nodes(old, new) else typed(relax.If(*new))
        if isinstance(node, relax.Function):
            if body_of(node.body).same_as(new[0]):
                return node
            return function(node.params, new[0], node.attrs, pure=bool(node.is_pure))
        return rebuild(node, new, old=inner)

    stack: list[tuple[relax.Expr, list[relax.Expr] | None]] = [(expr, None)]
    while stack:
        node, inner = stack.pop()
        if inner is not None:
            done[key(node)] = inlined(node, inner, [done[key(part)] for part in inner])
            unfinished.discard(key(node))
        elif key(node) in unfinished:
            what, fix = "computed from itself", "bind it to an expression that does not contain it"
            raise RelayError(f"the variable {node} is {what}", where="a binding", fix=fix)
        elif key(node) not in done:
            if isinstance(node, relax.SeqExpr) and kept_let(node) is None:
                for block in node.blocks:
                    values |= {key(one.var): one.value for one in block.bindings}
            if isinstance(node, relax.Var):
                unfinished.add(key(node))
            inner = parts(node)
            stack.append((node, inner))
            stack.extend([(part, None) for part in reversed(inner)])
    return done[key(expr)]


def substitute(
    expr: relax.Expr, values: Mapping[relax.Var, relax.Expr], infer: bool = True
) -> relax.Expr:
    """Replace a graph's variables by expressions."""
    by_key = {key(var): value for var, value in values.items()}
    return transform(inline_bindings(expr), lambda _, after: by_key.get(key(after), after), infer)


def result(body: relax.Expr) -> relax.Expr:
    """Return the expression that a function's body computes last, or the body if it is a `let`."""
    while isinstance(body, relax.SeqExpr):
        values = {key(one.var): one.value for block in body.blocks for one in block.bindings}
        if values and key(body.body) not in values:
            return body
        inner = body.body
        while key(inner) in values:
            inner = values.pop(key(inner))
        body = inner
    return body


def to_anf(
    params: Sequence[relax.Var],
    body: relax.Expr,
    attrs: dict[str, Any] | ir.DictAttrs | None = None,
) -> relax.Function:
    """Turn a graph into a function with one binding for each call.

    All bindings are in one dataflow block, unless the graph contains functions or branches.
    """
    known = list(walk(body))
    nodes = [node for node, _ in known]
    plain = not any(type(node) in (relax.Function, relax.If) for node in nodes)
    homes = {} if plain else _homes(nodes)
    bound: dict[Branch, list[relax.Binding]] = {(): []}
    done: dict[int, relax.Expr] = {}

    names = {"lv": itertools.count(), "gv": itertools.count()}  # as TVM's builder names variables

    def bind(new: relax.Expr, home: Branch = (), last: bool = False) -> relax.Expr:
        local = plain and not last
        name = "lv" if local or home else "gv"
        name += str(next(names[name]) or "")
        var = (relax.DataflowVar if local else relax.Var)(name, new.ty)
        bound.setdefault(home, []).append(relax.VarBinding(var, new))
        return var

    builder = relax.BlockBuilder()
    builder.begin_scope(list(params))
    for node, old in known:
        if type(node) is ir.GenericConst:
            done[key(node)] = node
            continue
        if type(node) is relax.Function and not node.body.blocks:
            new: relax.Expr = to_anf(node.params, body_of(node.body), node.attrs)
        elif type(node) is relax.If and branches(node):
            sides = []
            for side, value in zip((1, 2), branches(node), strict=True):
                held = bound.pop((*homes[key(node)], (key(node), side)), None)
                blocks = [relax.BindingBlock(held)] if held else []
                sides.append(relax.SeqExpr(blocks, done[key(value)]))
            new = builder.normalize(relax.If(done[key(node.cond)], *sides))
        else:
            new = rebuild(node, [done[key(child)] for child in old], old=old)
        if type(node) in (relax.Call, relax.TupleGetItem, relax.Function, relax.If):
            new = bind(new, homes.get(key(node), ()), node.same_as(body))
        done[key(node)] = new
    result = done[key(body)]
    # Bind the result without a dataflow block too, as the reader of Relay text does.
    if not isinstance(result, relax.Var):
        result = bind(result, last=True)
    block = (relax.DataflowBlock if plain else relax.BindingBlock)(bound[()])
    made = builder.normalize(relax.SeqExpr([block] if bound[()] else [], result))
    builder.end_scope()
    return function(params, made, attrs)


UNKNOWN = relax.TensorType(None, None)  # the type of a Relay parameter without a type
MAX_SCOPES = 50  # the largest depth of nested functions and branches
MAX_TYPE_DEPTH = 64  # the largest depth of nested tuple and function types
MAX_TYPE_PARTS = 10_000  # the most parts of a type, counting repeated parts again

# Maps the key of an expression or type to its depth, its number of parts, and the object itself.
Sizes = dict[int, tuple[int, int, Any]]


def check_scopes(depth: int) -> None:
    """Refuse functions and branches that nest deeper than `MAX_SCOPES` levels."""
    if depth > MAX_SCOPES:
        what = f"functions or branches nest deeper than {MAX_SCOPES} levels"
        fix = "call functions of the module in place of nested ones"
        raise RelayError(what, where="a function's body", fix=fix)


def check_size(expr: relax.Expr, known: Sizes) -> None:
    """Refuse a tuple or function with too large a type; its parts must be checked before it."""

    def size(kind: ir.Type, level: int = 0) -> tuple[int, int, Any]:
        if level <= MAX_TYPE_DEPTH and key(kind) not in known:
            inner = kind.fields if isinstance(kind, ir.TupleType) else []
            if isinstance(kind, relax.FuncType):
                inner = [*(kind.params or ()), kind.ret]
            known[key(kind)] = whole([size(part, level + 1) for part in inner], kind)
        return known.get(key(kind), (MAX_TYPE_DEPTH, MAX_TYPE_PARTS, kind))

    def whole(parts: list[tuple[int, int, Any]], of: Any) -> tuple[int, int, Any]:
        depth = 1 + max((part[0] for part in parts), default=0)
        return depth, 1 + sum(part[1] for part in parts), of

    if isinstance(expr, relax.Tuple):
        found = whole([known.get(key(one)) or size(one.ty) for one in expr.fields], expr)
    elif isinstance(expr.ty, (ir.TupleType, relax.FuncType)):
        found = (*size(expr.ty)[:2], expr)
    else:
        return
    if found[0] > MAX_TYPE_DEPTH or found[1] > MAX_TYPE_PARTS:
        what = f"A type has more than {MAX_TYPE_PARTS} parts or nests deeper than {MAX_TYPE_DEPTH}"
        raise RelayError(f"{what} levels", where="a tuple or function", fix="use flat tuples")
    known[key(expr)] = found


# The branches around a node, from the outermost to the innermost: each an `if` and a side.
Branch = tuple[tuple[int, int], ...]


def _homes(nodes: Sequence[relax.Expr]) -> dict[int, Branch]:
    """Return the innermost branch that contains all uses of each node, given in post-order."""
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


Block = tuple[bool, list[relax.Binding]]  # whether it is a dataflow block, and its bindings


def live(blocks: list[Block], body: relax.Expr) -> list[Block]:
    """Drop bindings that nothing reads and that have no effect."""
    needed = set(relax.analysis.free_vars(body))
    kept: list[Block] = []
    for dataflow, bindings in reversed(blocks):
        mine = []
        for binding in reversed(bindings):
            if binding.var in needed or not _pure(binding):
                mine.append(binding)
                needed.update(relax.analysis.free_vars(binding.value))
        if mine:
            kept.append((dataflow, mine[::-1]))
    return kept[::-1]


def _pure(binding: relax.Binding) -> bool:
    """Return whether a binding can be dropped if nothing reads it."""
    value = binding.value
    if not isinstance(binding, relax.VarBinding):
        return False  # a match_cast has a check
    if isinstance(value, relax.Call):
        return isinstance(value.op, ir.Op) and bool(value.op.get_attr("FPurity"))
    return isinstance(
        value, (relax.Var, relax.Tuple, relax.TupleGetItem, relax.ShapeExpr, ir.GenericConst)
    )


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would scan growing graphs repeatedly for nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


_BUILDER = relax.BlockBuilder()
