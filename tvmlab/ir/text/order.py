"""The order in which Relay prints a body: which values get a line, and when.

Relay's printer walks the graph from its result. Arguments come before calls, and a value gets its
line, and with it its number, just before the line of its first user. Therefore a tuple comes where
it is used first, and the temporaries of a nested function have lower numbers than the function.

A Relax body has an order already, which must not change when the text is read again. Relay's order
is used where the bindings have that order, as they have in all text that Relay printed; otherwise
the order of the bindings is used.
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

    A ``"call"``, ``"tuple"``, ``"field"``, ``"function"`` or ``"if"`` gets a line with a number;
    a ``"let"`` (a binding of what is no computation) and a ``"free"`` variable a line with a name;
    a ``"constant"`` is printed inline.
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

    The `body` is a sequence of bindings, or a graph; `known` has the keys of the variables that are
    bound around it. In a `fragment` the last binding gets a line too. The `events` have nodes
    twice: when their text can be made (False), and when they get a line (True). The `result` is the
    last line; None where that is the last binding already.
    """

    def __init__(self, body: relax.Expr, known: Container[int], fragment: bool = False) -> None:
        self._known = known
        self._bound: dict[int, Node] = {}
        self._inline: dict[int, Node] = {}
        blocks = body.blocks if isinstance(body, relax.SeqExpr) else []
        result = body.body if isinstance(body, relax.SeqExpr) else body
        lines: list[Node] = []
        for one in (one for block in blocks for one in block.bindings):
            if isinstance(one, relax.MatchCast):
                fix = "bind the shapes first, so that no R.match_cast is needed"
                what, where = "Relay cannot match a value with a type", binding(one.var)
                raise RelayError(what, where=where, fix=fix)
            node = _node(one.value, one.var)
            self._bound[node.key] = node
            lines.append(node)
        last = lines[-1] if lines else None
        # Where nothing is given, Relax writes the empty tuple in the place of its variable.
        final = last is not None and (
            graph.key(result) == last.key or (_is_empty(result) and _is_empty(last.expr))
        )
        if last and final and (_is_output(lines) if last.kind == "let" else not fragment):
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
        """Return an expression's node; None for what is known by name."""
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
    """Return whether the last line is left out, which only gives another name to the result.

    A result that is no computation is bound when the text is read again, as outputs of dataflow
    blocks are; but not where there is no block, nor a variable in a block of another kind, nor the
    variable that the line before binds by `let`, which is read as the output itself.
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
        return Node("field", expr, var, [expr.tuple_value])
    if isinstance(expr, relax.If):
        return Node("if", expr, var, [expr.cond], list(relax.analysis.free_vars(expr)))
    if isinstance(expr, relax.Function):
        captured = list(relax.analysis.free_vars(expr))
        if var is not None and any(var.same_as(one) for one in captured):
            what = "A nested function calls itself, which Relay has for functions of a module only"
            fix = "make it a function of the module, with LambdaLift"
            raise RelayError(what, where=binding(var), fix=fix)
        return Node("function", expr, var, [], captured)
    if not isinstance(expr, relax.Tuple | relax.Var | ir.GenericConst | ir.GlobalVar):
        what = f"Relay has no form for a {type(expr).__name__}: {str(expr)[:80]}"
        fix = "use only tensors, tuples of them and functions"
        raise RelayError(what, where=binding(var), fix=fix)
    if var is not None:
        return Node("let", expr, var, [expr])
    if isinstance(expr, relax.Tuple):
        return Node("tuple", expr, None, list(expr.fields))
    return Node("free" if isinstance(expr, relax.Var) else "constant", expr)


def _call(call: relax.Call, var: relax.Var | None) -> Node:
    if isinstance(call.op, relax.Var | relax.Function | ir.GlobalVar):
        return Node("call", call, var, list(call.args), callee=call.op)
    written = table.written(call) if isinstance(call.op, ir.Op) else None
    if written is None:
        raise _unknown(call, var)
    row, inputs, attributes = written
    return Node("call", call, var, list(inputs), row=row, attributes=attributes)


def binding(var: relax.Var | None) -> str | None:
    """Return the place of a value for an error: the variable that it is bound to, if any."""
    return None if var is None else f"binding {var.name}"


def _unknown(call: relax.Call, var: relax.Var | None) -> RelayError:
    name = call.op.name if isinstance(call.op, ir.Op) else str(call.op)
    what = f"Relay has no operator like {name}"
    if not isinstance(call.op, ir.Op) or name.startswith(_LOWERED):
        fix = "print the module before it is lowered: it calls generated functions"
    elif name in ("relax.quantize", "relax.dequantize"):
        fix = "run tvmlab.qnn.transform.FakeQuantizationToInteger: Relay's operators are qnn's"
    elif any(row.relax == name for row in table.rows()):
        what = f"Relay has {name}, but not with these operands and attributes: {str(call)[:200]}"
        fix = "use Relay's operators, or others of their attributes"
    else:
        near = table.closest(name.removeprefix("relax."))
        fix = "use operators that Relay has" + (f", such as {near}" if near else "")
    return RelayError(what, where=binding(var) or "a call that no variable is bound to", fix=fix)


_UNPLACED = {"constant", "let"}
_LOWERED = ("relax.call_", "relax.vm.", "relax.memory.", "relax.builtin.", "relax.inspect.")
