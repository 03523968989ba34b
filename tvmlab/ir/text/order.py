"""The order in which Relay prints a body: what gets a line, and when.

Relay's printer walks the graph from its result. Arguments come before calls, and a value gets its
line, and with it its number, just before the first one that uses it does: so a tuple stands where
it is used first, and the temporaries of a nested function have lower numbers than the function.

A Relax body has an order already, and what is read again must have the same. So Relay's order is
taken where the bindings stand in it, as they do in all that Relay printed once; else theirs is.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm import ir, relax

from ...errors import RelayError
from .. import graph, table


@dataclass(slots=True, eq=False)
class Node:
    """A value in a body.

    `kind` is ``"call"``, ``"tuple"``, ``"field"``, ``"function"`` or ``"if"`` for what gets a line
    with a number; ``"let"`` (a binding of what is no computation) and ``"free"`` (a variable that
    nothing binds) for what gets a line with a name; and ``"constant"`` for what stands inline.
    """

    kind: str
    expr: relax.Expr
    var: relax.Var | None = None  # the variable that the value is bound to
    inputs: list[relax.Expr] = field(default_factory=list)  # operands, fields or a condition
    captured: list[relax.Expr] = field(default_factory=list)  # used from around a function
    callee: relax.Expr | None = None  # the function that a call calls
    row: table.Operator | None = None  # the operator that a call calls, in Relay
    attributes: dict[str, Any] | None = None
    key: int = 0  # of the variable, or of the value without one

    def __post_init__(self) -> None:
        self.key = graph.key(self.expr if self.var is None else self.var)


Events: TypeAlias = list[tuple[Node, bool]]


class Scope:
    """A body: its values in the order in which they are printed.

    Parameters
    ----------
    body : tvm.relax.Expr
        A sequence of bindings, or a graph.
    known : container of int
        The keys of the variables that are bound around it.
    fragment : bool
        Whether the last binding gets a line too.

    Attributes
    ----------
    events : list of tuple of Node, bool
        Nodes twice: when their text can be made (False), and when they get a line (True).
    result : tvm.relax.Expr or None
        What stands last; None where that is the last line already.

    Raises
    ------
    RelayError
        Relay has no form for a value.
    """

    def __init__(self, body: relax.Expr, known: Container[int], fragment: bool = False) -> None:
        self._known = known
        self._bound: dict[int, Node] = {}
        self._inline: dict[int, Node] = {}
        bindings = [
            binding
            for block in (body.blocks if isinstance(body, relax.SeqExpr) else ())
            for binding in block.bindings
        ]
        result = body.body if isinstance(body, relax.SeqExpr) else body
        lines: list[Node] = []
        for binding in bindings:
            if isinstance(binding, relax.MatchCast):
                raise RelayError(
                    "Relay cannot match a value with a type",
                    where=f"binding {binding.var.name}",
                    fix="bind the shapes first, so that no R.match_cast is needed",
                )
            node = _node(binding.value, binding.var)
            self._bound[node.key] = node
            lines.append(node)
        last = lines[-1] if lines else None
        # Where nothing is given, Relax writes the empty tuple in the place of its variable.
        final = last is not None and (
            graph.key(result) == last.key or (_is_empty(result) and _is_empty(last.expr))
        )
        if (
            last is not None
            and final
            and (_is_output(lines) if last.kind == "let" else not fragment)
        ):
            lines.pop()
            if last.kind == "let":
                result, final = last.expr, False
        root = self._find(result)
        placed = root is not None and (
            fragment if final else isinstance(result, relax.Var) and root.kind != "let"
        )
        ends: list[tuple[Node, bool]] = [] if root is None else [(root, placed)]
        self.events = self._walk([(node, True) for node in lines if node.kind == "let"] + ends)
        if [node for node, place in self.events if place and node.key in self._bound] != lines:
            self.events = self._walk([(node, True) for node in lines] + ends)
        self.result = result
        if fragment and root is not None and self.events[-1] == (root, True):
            self.result = None

    def free(self) -> list[int]:
        """List the keys of the variables that nothing binds, in the order of their lines."""
        return [node.key for node, place in self.events if place and node.kind == "free"]

    def _walk(self, roots: Events) -> Events:
        """Order what some values are made of, in Relay's way."""
        events: Events = []
        done: set[int] = set()
        placed: set[int] = set()

        def place(node: Node) -> None:
            if node.key not in placed:
                placed.add(node.key)
                events.append((node, True))

        for root, placing in roots:
            stack = [(root, False)]
            while stack:
                node, ready = stack.pop()
                if node.key in done:
                    continue
                parts, callee = self._parts(node), None
                if node.callee is not None:
                    callee = self._find(node.callee)
                if not ready:
                    stack.append((node, True))
                    stack.extend((part, False) for part in reversed(parts))
                    if callee is not None:
                        stack.append((callee, False))
                    continue
                done.add(node.key)
                for part in parts if callee is None else [*parts, callee]:
                    # What a let binds stands in its line.
                    if part.kind not in _UNPLACED and (node.kind, part.kind) != ("let", "tuple"):
                        place(part)
                events.append((node, False))
            if placing:
                place(root)
        return events

    def _parts(self, node: Node) -> list[Node]:
        found = [self._find(part) for part in (*node.inputs, *node.captured)]
        return [part for part in found if part is not None]

    def _find(self, expr: relax.Expr) -> Node | None:
        """Give an expression's node; None for what is known by name."""
        if isinstance(expr, ir.GlobalVar):
            return None
        key = graph.key(expr)
        node = self._bound.get(key) or self._inline.get(key)
        if node is None and not (isinstance(expr, relax.Var) and key in self._known):
            node = self._inline[key] = _node(expr)
        return node


def _is_empty(expr: relax.Expr) -> bool:
    return isinstance(expr, relax.Tuple) and not expr.fields


def _is_output(lines: list[Node]) -> bool:
    """Say whether the last line is left out, which only gives another name to the result.

    A result that is no computation is bound when the text is read again, as outputs of dataflow
    blocks are; but not where there is no block, nor a variable that is in a block of another kind,
    nor the one that the line before binds by `let`, which is taken for the output itself.
    """
    *others, last = lines
    if isinstance(last.expr, relax.Tuple):
        return True
    if isinstance(last.expr, relax.Var) and others:
        before = others[-1]
        return not any(node.kind in ("function", "if") for node in others) and not (
            before.kind == "let" and before.key == graph.key(last.expr)
        )
    return bool(others)


def _node(expr: relax.Expr, var: relax.Var | None = None) -> Node:
    """Make the node of a value, with what it is printed with."""
    if isinstance(expr, relax.Call):
        return _call(expr, var)
    if isinstance(expr, relax.TupleGetItem):
        node = Node("field", expr, var)
        node.inputs = [expr.tuple_value]
    elif isinstance(expr, relax.Function | relax.If):
        node = Node("if" if isinstance(expr, relax.If) else "function", expr, var)
        node.inputs = [expr.cond] if isinstance(expr, relax.If) else []
        node.captured = list(relax.analysis.free_vars(expr))
        if any(graph.key(captured) == node.key for captured in node.captured):
            raise RelayError(
                "A nested function calls itself, which Relay has for functions of a module only",
                where=None if var is None else f"binding {var.name}",
                fix="make it a function of the module, with LambdaLift",
            )
    elif not isinstance(expr, relax.Tuple | relax.Var | ir.GenericConst | ir.GlobalVar):
        where = None if var is None else f"binding {var.name}"
        raise RelayError(
            f"Relay has no form for a {type(expr).__name__}: {str(expr)[:80]}",
            where=where,
            fix="leave tensors, tuples of them and functions only",
        )
    elif var is not None:
        node = Node("let", expr, var)
        node.inputs = [expr]
    elif isinstance(expr, relax.Tuple):
        node = Node("tuple", expr)
        node.inputs = list(expr.fields)
    else:
        node = Node("free" if isinstance(expr, relax.Var) else "constant", expr)
    return node


def _call(call: relax.Call, var: relax.Var | None) -> Node:
    node = Node("call", call, var)
    if isinstance(call.op, ir.Op):
        written = table.written(call)
        if written is None:
            raise _unknown(call, var)
        node.row, inputs, node.attributes = written
        node.inputs = list(inputs)
    elif isinstance(call.op, relax.Var | relax.Function | ir.GlobalVar):
        node.callee, node.inputs = call.op, list(call.args)
    else:
        raise _unknown(call, var)
    return node


def _unknown(call: relax.Call, var: relax.Var | None) -> RelayError:
    name = call.op.name if isinstance(call.op, ir.Op) else str(call.op)
    what = f"Relay has no operator like {name}"
    if not isinstance(call.op, ir.Op) or name.startswith(_LOWERED):
        fix = "print the module before it is lowered: it calls generated functions"
    elif name in ("relax.quantize", "relax.dequantize"):
        fix = (
            "run tvmlab.qnn.transform.FakeQuantizationToInteger first: Relay's operators are qnn's"
        )
    elif any(row.relax == name for row in table.rows()):
        what = f"Relay has {name}, but not with these operands and attributes: {str(call)[:200]}"
        fix = "say it with Relay's operators, or with others of their attributes"
    else:
        near = table.closest(name.removeprefix("relax."))
        fix = "say it with operators that Relay has" + (f", such as {near}" if near else "")
    where = "a call that no variable is bound to" if var is None else f"binding {var.name}"
    return RelayError(what, where=where, fix=fix)


_UNPLACED = {"constant", "let"}
_LOWERED = ("relax.call_", "relax.vm.", "relax.memory.", "relax.builtin.", "relax.inspect.")
