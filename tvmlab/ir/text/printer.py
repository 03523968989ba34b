"""Printer of Relax as Relay text, in Relay's own style.

Relay writes a graph: each line of a body has a number, the result comes last, and the numbering
continues in nested functions. Relay's printer walks the graph from its result. Arguments come
before calls, and a value gets its line, and therefore its number, just before the line of its first
user. Therefore a tuple appears where it is first used, and the temporaries of a nested function
have lower numbers than the function.

A Relax body has an order, which must not change when the text is read again. The printer uses
Relay's order if the bindings have that order, as in all text that Relay printed; otherwise it uses
the order of the bindings.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph, operators, table
from ..graph import no_collection
from . import literals
from .metadata import BOXED, CONSTANT, MetadataWriter

__all__ = ["astext"]
assert operators  # importing the module fills the table

Printable: TypeAlias = tvm.IRModule | relax.Expr

_PRINTED_TYPES = (relax.TensorType, ir.TupleType, relax.FuncType)
_HEADER = '#[version = "0.0.5"]\n'
_OMITTED = """/* For debugging purposes the metadata section has been omitted.
 * If you would like to see the full metadata section you can set the 
 * option to `True` when invoking `astext`. 
 */"""  # noqa: W291


def astext(mod: Printable, show_meta_data: bool = True, types: bool = True) -> str:
    """Print Relax as Relay text.

    Parameters
    ----------
    mod : tvm.IRModule or tvm.relax.Expr
        A module of Relax functions, a function, or a graph (see `tvmlab.ir.graph`).
    show_meta_data : bool
        Whether to print the constants that do not fit in a line. Text without them cannot be
        read again.
    types : bool
        Whether to print the types of expressions in comments. Parameters always have types.

    Returns
    -------
    str
        Text of version 0.0.5, from which `tvmlab.relay.fromtext` makes the same module.

    Raises
    ------
    RelayError
        Relay has no form for a part of the module: an operator, a kind of function, or a type.

    Notes
    -----
    The text is that of `relay.astext` in TVM 0.18 (`src/relay/printer/relay_text_printer.cc`),
    except that floating-point numbers have as many digits as they need, where Relay prints six.
    """
    printer = _Printer(types)
    try:
        with no_collection():
            text = printer.text(mod)
    except RecursionError:
        what = "Functions or branches nest too deeply to be printed"
        raise RelayError(what, fix="move inner functions into the module") from None
    if not printer.section:
        return text
    if not show_meta_data:
        return f"{text}\n{_OMITTED}"
    return f"{text}\n#[metadata]\n{printer.section.text()}"


class _Printer:
    def __init__(self, typed: bool) -> None:
        self.section = MetadataWriter()
        self._typed = typed
        self._names = literals.Names()
        self._functions: dict[str, str] = {}
        self._numbers = 0  # of temporaries, counted across functions
        self._memo: dict[int, str] = {}  # by key, the text of a value at its uses
        self._statements: dict[int, str] = {}  # by key, lines other than %number = ...
        self._types: dict[int, str | None] = {}
        self._scopes: list[Scope] = []
        self._free = False  # whether unbound variables are allowed

    def text(self, mod: Printable) -> str:
        """Print everything except the metadata section."""
        is_module = isinstance(mod, tvm.IRModule)
        return _HEADER + (self.module(mod) if is_module else self.alone(mod))

    def module(self, mod: tvm.IRModule) -> str:
        """Print the functions, sorted by name as in Relay."""
        functions = sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint))
        for name, function in functions:
            if not isinstance(function, relax.Function):
                what = f"@{name.name_hint} is a {type(function).__name__}, not a Relax function"
                raise RelayError(what, fix="print the module before it is lowered")
            self._function_name(name)
            if name.name_hint == "main":  # users refer to its parameters by name
                for param in function.params:
                    self._name(param)
        return "\n".join(
            f"def {self._function_name(name)}{self._function(function, '')}\n"
            for name, function in functions
        )

    def alone(self, expr: relax.Expr) -> str:
        """Print a function, or a graph with its free variables."""
        if isinstance(expr, relax.Function):
            return f"fn {self._function(expr, '')}" + self._comment(expr.ty)
        self._free = True
        return "\n".join(self._scope(expr, ""))

    def _function(self, function: relax.Function, indent: str) -> str:
        inner = [self._declared(param) for param in function.params]
        inner += self._attributes(function)
        result = literals.write_type(function.ret_ty)
        arrow = "" if result is None else f"-> {result} "
        body = "\n".join(self._scope(function.body, indent + "  "))
        return f"({', '.join(inner)}) {arrow}{{\n{body}\n{indent}}}"

    def _declared(self, var: relax.Var) -> str:
        """Print a variable's name with its type."""
        name, text = self._name(var), self._type(var.ty)
        if not isinstance(var.ty, _PRINTED_TYPES) and graph.has_type(var):
            fix = "give it the type of a tensor or a tuple of tensors"
            where = f"variable {var.name}"
            raise RelayError(f"Relay has no type {var.ty}", where=where, fix=fix)
        return name + (f": {text}{self._comment(var.ty)}" if text else "")

    def _name(self, var: relax.Var) -> str:
        key = graph.key(var)
        if key not in self._memo:
            self._memo[key] = self._names.local(var.name)
        return self._memo[key]

    def _attributes(self, function: relax.Function) -> list[str]:
        """Print a function's attributes; a compiler has two in Relax, and one in Relay."""
        found = {str(key): dialect.plain(value) for key, value in (function.attrs or {}).items()}
        if "Compiler" in found and found.get("Codegen") == found["Compiler"]:
            del found["Codegen"]
        if found.get("global_symbol") == "main":  # every main has it in Relax, but not in Relay
            del found["global_symbol"]
        return [self._setting(key, value) for key, value in found.items()]

    def _setting(self, name: str, value: Any, kind: str = "") -> str:
        if kind == "any" and isinstance(value, int):
            return f"{name}={self.section.add(BOXED, value)}"
        if kind in ("float", "bool") and value is not None:
            value = float(value) if kind == "float" else bool(value)
        text = literals.write_attribute(value)
        if text is None:
            what = f"Relay's text cannot hold the attribute {name}={str(value)[:80]}"
            raise RelayError(what, fix="use numbers, strings or lists of them, or remove it")
        return f"{name}={text}"

    def _scope(self, body: relax.Expr, indent: str) -> list[str]:
        scope = Scope(body, self._memo)
        # Keep the scopes alive: texts are cached by identity, also of nodes made by the table.
        self._scopes.append(scope)
        lines: list[str] = []
        around: dict[int, str] = {}  # texts to restore after this scope
        for node, place in scope.events:
            if not place:
                if node.key in self._memo:
                    if node.kind == "constant":  # written once for the whole text
                        continue
                    around[node.key] = self._memo[node.key]
                self._memo[node.key] = self._value_text(node, indent)
            elif node.key in self._statements:
                lines.append(f"{indent}{self._statements[node.key]};")
            else:
                lines.append(f"{indent}%{self._numbers} = {self._memo[node.key]};")
                self._memo[node.key] = f"%{self._numbers}"
                self._numbers += 1
        lines.append(indent + self._use(scope.result))
        self._memo.update(around)
        return lines

    def _value_text(self, node: Node, indent: str) -> str:
        expr, kind = node.expr, node.kind
        if kind == "constant":
            return self._constant(expr)
        if kind == "let":
            declared, value = self._declared(node.var), self._use(expr)
            self._statements[node.key] = f"let {declared} = {value}"
            return self._memo[node.key]
        if kind == "free":
            if not self._free:
                what = f"Variable {expr.name} is used where nothing binds it"
                raise RelayError(what, fix="make it a parameter, or bind it first")
            self._statements[node.key] = f"free_var {self._declared(expr)}"
            return self._memo[node.key]
        inputs = [self._use(part) for part in node.inputs]
        if kind == "call":
            text = self._call(node, inputs)
        elif kind == "tuple":
            text = literals.write_tuple(inputs)
        elif kind == "field":
            text = f"{inputs[0]}.{expr.index}"
            if text in self._names.given:  # avoids the name of a variable
                text = f"({inputs[0]}).{expr.index}"
        elif kind == "function":
            text = f"fn {self._function(expr, indent)}"
        else:
            return self._branches(expr, inputs[0], indent)
        return text + self._comment(expr.ty)

    def _call(self, node: Node, inputs: list[str]) -> str:
        if node.row is None or node.attributes is None:
            return f"{self._use(node.callee)}({', '.join(inputs)})"
        for attribute in node.row.attributes:
            value, usual = node.attributes[attribute.name], attribute.default
            # For kind "number" 1 differs from 1.0; for every kind -0.0 differs from 0.0.
            exact = attribute.kind != "number" or type(value) is type(usual)
            exact = exact and str(value) != "-0.0"
            if usual is table.REQUIRED or value != usual or not exact:
                inputs.append(self._setting(attribute.name, value, attribute.kind))
        return f"{node.row.name}({', '.join(inputs)})"

    def _branches(self, branch: relax.If, condition: str, indent: str) -> str:
        then, other = (
            "\n".join(self._scope(body, indent + "  "))
            for body in (branch.true_branch, branch.false_branch)
        )
        return f"if ({condition}) {{\n{then}\n{indent}}} else {{\n{other}\n{indent}}}"

    def _constant(self, constant: relax.Expr) -> str:
        value = constant.value
        if not isinstance(value, tvm.runtime.Tensor):
            raise RelayError(f"Relay has no constant {value}", fix="use tensors only")
        text = None if value.shape else literals.write_scalar(value.numpy())
        return (text or self.section.add(CONSTANT, value)) + self._comment(constant.ty)

    def _use(self, expr: relax.Expr) -> str:
        if isinstance(expr, ir.GlobalVar):
            return self._function_name(expr)
        return self._memo[graph.key(expr)]

    def _function_name(self, name: ir.GlobalVar) -> str:
        hint = str(name.name_hint)
        if hint not in self._functions:
            self._functions[hint] = self._names.function(hint)
        return self._functions[hint]

    def _comment(self, ty: ir.Type) -> str:
        text = self._type(ty) if self._typed else None
        return "" if text is None else f" /* ty={text} */"

    def _type(self, ty: ir.Type) -> str | None:
        """Return the text of a type, cached because many calls have the same type."""
        key = graph.key(ty)
        if key not in self._types:
            self._types[key] = literals.write_type(ty)
        return self._types[key]


@dataclass(slots=True, eq=False)
class Node:
    """A value in a body.

    A ``"call"``, ``"tuple"``, ``"field"``, ``"function"`` or ``"if"`` gets a line with a number; a
    ``"let"`` (a binding of a value that is not computed) and a ``"free"`` variable get a line with
    a name; a ``"constant"`` is printed inline.
    """

    kind: str
    expr: relax.Expr
    var: relax.Var | None  # the variable that the value is bound to
    inputs: list[relax.Expr]  # operands, fields, a condition, and free variables of bodies
    callee: relax.Expr | None = None  # the function that a call calls
    row: table.Operator | None = None  # the operator that a call calls, in Relay
    attributes: dict[str, Any] | None = None
    key: int = 0  # of the variable, or of the value without a variable

    def __post_init__(self) -> None:
        self.key = graph.key(self.expr if self.var is None else self.var)


Events: TypeAlias = list[tuple[Node, bool]]


class Scope:
    """A body, with its values in the order in which they are printed.

    `body` is a sequence of bindings, or a graph; `known` has the keys of the variables that are
    bound around it. `events` has each node twice: when its text can be made (False), and when it
    gets a line (True). `result` is the last line.
    """

    def __init__(self, body: relax.Expr, known: Container[int]) -> None:
        self._known = known
        self._bound: dict[int, Node] = {}
        self._inline: dict[int, Node] = {}
        sequence = isinstance(body, relax.SeqExpr)
        result = body.body if sequence else body
        for one in (one for block in body.blocks for one in block.bindings) if sequence else ():
            if isinstance(one, relax.MatchCast):
                fix = "bind the shapes first, so that no R.match_cast is needed"
                what, where = "Relay cannot match a value with a type", _binding(one.var)
                raise RelayError(what, where=where, fix=fix)
            self._bound[graph.key(one.var)] = _node(one.value, one.var)
        lines = list(self._bound.values())
        # For an empty result, Relay writes the empty tuple instead of its variable.
        final = bool(lines) and (
            graph.key(result) == lines[-1].key or (_is_empty(result) and _is_empty(lines[-1].expr))
        )
        if final and (lines[-1].kind != "let" or _is_output(lines)):
            last = lines.pop()
            if last.kind == "let":
                result, final = last.expr, False
        root = self._find(result)
        placed = not final and isinstance(result, relax.Var)
        ends = [] if root is None else [(root, placed and root.kind != "let")]
        self.result = result
        self.events = self._walk([(node, True) for node in lines if node.kind == "let"] + ends)
        if [node for node, place in self.events if place and node.key in self._bound] != lines:
            self.events = self._walk([(node, True) for node in lines] + ends)

    def _walk(self, roots: Events) -> Events:
        """Return the events for the operands of some values, in Relay's order."""
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
                    # The value of a `let` is in its line.
                    if part.kind not in _UNPLACED and (node.kind, part.kind) != ("let", "tuple"):
                        place(part)
                events.append((node, False))
            if placing:
                place(root)
        return events

    def _parts(self, node: Node) -> list[Node]:
        return [part for one in node.inputs if (part := self._find(one)) is not None]

    def _find(self, expr: relax.Expr) -> Node | None:
        """Return an expression's node; None for a global or an enclosing scope's variable."""
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
    """Return whether to omit the last line, because it only renames the result.

    The reader binds a result that is not computed, like the outputs of dataflow blocks. It does not
    do so without a block, for a variable in a block of another kind, or for the variable that the
    line before binds by `let`, which is read as the output itself.
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
    if isinstance(expr, relax.Call):
        return _call(expr, var)
    if isinstance(expr, relax.TupleGetItem):
        return Node("field", expr, var, [expr.tuple_value])
    if isinstance(expr, relax.If):
        return Node("if", expr, var, [expr.cond, *relax.analysis.free_vars(expr)])
    if isinstance(expr, relax.Function):
        captured = list(relax.analysis.free_vars(expr))
        if var is not None and any(var.same_as(one) for one in captured):
            what = "A nested function calls itself, but in Relay only functions of a module can"
            fix = "make it a function of the module with LambdaLift"
            raise RelayError(what, where=_binding(var), fix=fix)
        return Node("function", expr, var, captured)
    if not isinstance(expr, relax.Tuple | relax.Var | ir.GenericConst | ir.GlobalVar):
        what = f"Relay has no form for a {type(expr).__name__}: {str(expr)[:80]}"
        fix = "use only tensors, tuples of them and functions"
        raise RelayError(what, where=_binding(var), fix=fix)
    if var is not None:
        return Node("let", expr, var, [expr])
    if isinstance(expr, relax.Tuple):
        return Node("tuple", expr, None, list(expr.fields))
    return Node("free" if isinstance(expr, relax.Var) else "constant", expr, None, [])


def _call(call: relax.Call, var: relax.Var | None) -> Node:
    if isinstance(call.op, relax.Var | relax.Function | ir.GlobalVar):
        return Node("call", call, var, list(call.args), callee=call.op)
    written = table.written(call) if isinstance(call.op, ir.Op) else None
    if written is None:
        raise _unknown(call, var)
    row, inputs, attributes = written
    return Node("call", call, var, list(inputs), row=row, attributes=attributes)


def _binding(var: relax.Var | None) -> str | None:
    """Return the place of a value for an error: the variable that it is bound to, or None."""
    return None if var is None else f"binding {var.name}"


def _unknown(call: relax.Call, var: relax.Var | None) -> RelayError:
    name = call.op.name if isinstance(call.op, ir.Op) else str(call.op)
    what, near = f"Relay has no operator {name}", table.closest(name.removeprefix("relax."))
    fix = "use operators that Relay has" + (f", such as {near}" if near else "")
    if not isinstance(call.op, ir.Op) or name.startswith("relax.call_"):
        fix = "print the module before it is lowered: it calls generated functions"
    elif name in ("relax.quantize", "relax.dequantize"):
        fix = "run tvmlab.qnn.transform.FakeQuantizationToInteger: Relay has qnn operators"
    elif table.relay_names(name):
        what = f"Relay has {name}, but not with these operands and attributes: {str(call)[:200]}"
        fix = "use operands and attributes that Relay's operator has"
    return RelayError(what, where=_binding(var) or "a call that no variable is bound to", fix=fix)


_UNPLACED = {"constant", "let"}
