"""Relax printed as Relay text, in Relay's own style.

Relay writes a graph: each line of a body has a number, the result comes last, and numbers go on
through nested functions. A Relax binding is such a line. The lines have the order of the bindings,
so that nothing is lost; see order.py for the numbers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm
from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph, operators, table
from ..graph import no_collection
from . import literals
from .decompose import decompose
from .literals import Names
from .metadata import BOXED, CONSTANT, MetadataWriter
from .order import Node, Scope, binding

__all__ = ["FRAGMENT", "astext"]
assert operators  # importing it fills the table

Printable: TypeAlias = tvm.IRModule | relax.Expr

FRAGMENT = "relay.fragment"
"""The attribute of a function that was read from a bare fragment of Relay text: 2 where the
fragment declares its free variables, which are the function's parameters, and 1 where not."""

_DECLARED = 2
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
        A module of Relax functions; or a function, or a graph (see `tvmlab.ir.graph`).
    show_meta_data : bool
        Whether to print the constants that do not fit into a line. Without them, the text cannot
        be read.
    types : bool
        Whether to print the types of expressions, in comments. Parameters have theirs anyway.

    Returns
    -------
    str
        Text of version 0.0.5. `tvmlab.relay.fromtext` makes the same module of it, but for calls
        that take several of Relay's (see `tvmlab.ir.text.decompose`). A module that was read from a
        bare fragment is printed as one.

    Raises
    ------
    RelayError
        Relay has no form for something in the module: an operator, a kind of function, a type.

    Notes
    -----
    It prints what `relay.astext` of TVM 0.18 would (`src/relay/printer/relay_text_printer.cc`),
    but for floating-point numbers, of which Relay prints six digits: here are as many as they need.
    So the text that Relay printed of a quantized network holds rounded scales, from which other
    integers can follow than Relay computed (see `tvmlab.relay.fromtext`); this text does not.
    """
    printer = _Printer(types)
    try:
        with no_collection():
            text = printer.text(mod)
    except RecursionError:
        what = "Functions or branches nest too deep to be printed"
        raise RelayError(what, fix="take some of them out") from None
    if not printer.section:
        return text
    if not show_meta_data:
        return f"{text}\n{_OMITTED}"
    return f"{text}\n#[metadata]\n{printer.section.text()}"


class _Printer:
    def __init__(self, typed: bool) -> None:
        self.section = MetadataWriter()
        self._typed = typed
        self._names, self._function_names = Names(), Names()
        self._functions: dict[str, str] = {}
        self._numbers = 0  # of temporaries; they go on from function to function
        self._memo: dict[int, str] = {}  # by key, what stands for a value where it is used
        self._statements: dict[int, str] = {}  # by key, lines that are not %number = ...
        self._types: dict[int, str | None] = {}
        self._scopes: list[Scope] = []
        self._free = False  # whether variables may be unbound

    def text(self, mod: Printable) -> str:
        """Print all but the metadata section."""
        if not isinstance(mod, tvm.IRModule):
            return _HEADER + self.alone(mod)
        main = mod["main"] if len(mod.functions) == 1 and "main" in mod else None
        if isinstance(main, relax.Function) and FRAGMENT in (main.attrs or {}):
            return self.fragment(main)
        return _HEADER + self.module(decompose(mod))

    def module(self, mod: tvm.IRModule) -> str:
        """Print the functions, in the order of their names as Relay does."""
        functions = sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint))
        for name, function in functions:
            if not isinstance(function, relax.Function):
                what = f"@{name.name_hint} is a {type(function).__name__}, not a Relax function"
                raise RelayError(what, fix="print the module before it is lowered")
            self._function_name(name)
        for name, function in functions:
            if name.name_hint == "main":  # whose parameters users know by name
                for param in function.params:
                    self._memo[graph.key(param)] = "%" + self._names.local(param.name)
        return "\n".join(self._definition(name, function) for name, function in functions)

    def _definition(self, name: ir.GlobalVar, function: relax.Function) -> str:
        try:
            return f"def @{self._function_name(name)}{self._function(function, '')}\n"
        except RelayError as problem:
            where = f"@{name.name_hint}" + (f", {problem.where}" if problem.where else "")
            raise RelayError(problem.what, where=where, fix=problem.fix) from None

    def alone(self, expr: relax.Expr) -> str:
        """Print a function, or a graph with its free variables."""
        if isinstance(expr, relax.Function):
            return f"fn {self._function(expr, '')}" + self._comment(expr.ty)
        self._free = True
        return "\n".join(self._scope(expr, ""))

    def fragment(self, function: relax.Function) -> str:
        """Print the lines of a body alone."""
        plain: list[relax.Var] = []
        for param in function.params:
            if param.name.startswith("meta["):
                self._memo[graph.key(param)] = param.name + self._comment(param.ty)
            else:
                plain.append(param)
        lines: list[str] = []
        if int(function.attrs[FRAGMENT]) == _DECLARED:
            # Relay declares a variable just before its first use, which tells their order.
            order = Scope(function.body, self._memo, fragment=True).free()
            if order != [graph.key(param) for param in plain]:
                lines = [f"  free_var {self._declared(param)};" for param in plain]
            self._free = True
        else:
            for param in plain:
                self._memo[graph.key(param)] = "%" + self._names.local(param.name)
        lines += self._scope(function.body, "  ", fragment=True)
        if self.section and len(plain) < len(function.params):
            what = "A fragment has parameters named like constants, meta[...], and constants"
            raise RelayError(what, fix="bind the parameters to their values with BindParams")
        return "\n".join(lines) + "\n"

    def _function(self, function: relax.Function, indent: str) -> str:
        """Print a function from its parameters on."""
        inner = [self._declared(param) for param in function.params]
        inner += self._attributes(function)
        result = literals.write_type(function.ret_ty)
        arrow = "" if result is None else f"-> {result} "
        body = "\n".join(self._scope(function.body, indent + "  "))
        return f"({', '.join(inner)}) {arrow}{{\n{body}\n{indent}}}"

    def _declared(self, var: relax.Var) -> str:
        """Name a variable, and print it with its type."""
        key = graph.key(var)
        if key not in self._memo:
            self._memo[key] = "%" + self._names.local(var.name)
        text = self._type(var.ty)
        if not isinstance(var.ty, _PRINTED_TYPES) and graph.has_type(var):
            fix = "give it the type of a tensor, or of a tuple of them"
            where = f"variable {var.name}"
            raise RelayError(f"Relay has no type like {var.ty}", where=where, fix=fix)
        return self._memo[key] + (f": {text}{self._comment(var.ty)}" if text else "")

    def _attributes(self, function: relax.Function) -> list[str]:
        """Print a function's attributes; a compiler has two names in Relax, and one in Relay."""
        found = {str(key): dialect.plain(value) for key, value in (function.attrs or {}).items()}
        if "Compiler" in found and found.get("Codegen") == found["Compiler"]:
            del found["Codegen"]
        if found.get("global_symbol") == "main":  # which Relax has for every main, and Relay not
            del found["global_symbol"]
        return [f"{key}={self._value(value, key)}" for key, value in found.items()]

    def _value(self, value: Any, name: str, node: Node | None = None) -> str:
        text = literals.write_attribute(value)
        if text is None:
            owner = "a function" if node is None or node.row is None else node.row.name
            raise RelayError(
                f"Relay's text cannot hold the attribute {name} of {owner}: {str(value)[:80]}",
                where=None if node is None else binding(node.var),
                fix="give it numbers, strings or lists of them, or leave it out",
            )
        return text

    def _scope(self, body: relax.Expr, indent: str, *, fragment: bool = False) -> list[str]:
        """Print the lines of a body, the result last."""
        scope = Scope(body, self._memo, fragment)
        # Texts are kept by identity, and what a row of the table made lives in the scope alone.
        self._scopes.append(scope)
        lines: list[str] = []
        around: dict[int, str] = {}  # what has a line here and stands for itself around, too
        for node, place in scope.events:
            if not place:
                if node.key in self._memo:
                    if node.kind == "constant":  # written once, and known everywhere
                        continue
                    around[node.key] = self._memo[node.key]
                self._memo[node.key] = self._value_text(node, indent)
            elif node.key in self._statements:
                lines.append(f"{indent}{self._statements[node.key]};")
            else:
                lines.append(f"{indent}%{self._numbers} = {self._memo[node.key]};")
                self._memo[node.key] = f"%{self._numbers}"
                self._numbers += 1
        if scope.result is not None:
            lines.append(indent + self._use(scope.result))
        self._memo.update(around)
        return lines

    def _value_text(self, node: Node, indent: str) -> str:
        """Print a value, in terms of what has been printed before."""
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
                raise RelayError(what, fix="make it a parameter, or bind it before")
            self._statements[node.key] = f"free_var {self._declared(expr)}"
            return self._memo[node.key]
        inputs = [self._use(part) for part in node.inputs]
        if kind == "call":
            text = self._call(node, inputs)
        elif kind == "tuple":
            text = literals.write_tuple(inputs)
        elif kind == "field":
            text = f"{inputs[0]}.{expr.index}"
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
            # Where a number may be whole or not, 1 is not 1.0.
            exact = attribute.kind != "number" or type(value) is type(usual)
            if usual is table.REQUIRED or value != usual or not exact:
                inputs.append(f"{attribute.name}={self._attribute(node, attribute, value)}")
        return f"{node.row.name}({', '.join(inputs)})"

    def _attribute(self, node: Node, attribute: table.Attribute, value: Any) -> str:
        if attribute.kind == "any" and isinstance(value, int):
            return self.section.add(BOXED, value)
        if attribute.kind == "float" and value is not None:
            return literals.write_float(value)
        if attribute.kind == "bool" and value is not None:
            return str(bool(value))
        return self._value(value, attribute.name, node)

    def _branches(self, branch: relax.If, condition: str, indent: str) -> str:
        then, other = (
            "\n".join(self._scope(body, indent + "  "))
            for body in (branch.true_branch, branch.false_branch)
        )
        return f"if ({condition}) {{\n{then}\n{indent}}} else {{\n{other}\n{indent}}}"

    def _constant(self, constant: relax.Expr) -> str:
        value = constant.value
        if not isinstance(value, tvm.runtime.Tensor):
            raise RelayError(f"Relay has no constants like {value}", fix="use tensors only")
        text = None if value.shape else literals.write_scalar(value.numpy())
        return (text or self.section.add(CONSTANT, value)) + self._comment(constant.ty)

    def _use(self, expr: relax.Expr) -> str:
        """Return the text that refers to a value that has been printed."""
        if isinstance(expr, ir.GlobalVar):
            return "@" + self._function_name(expr)
        return self._memo[graph.key(expr)]

    def _function_name(self, name: ir.GlobalVar) -> str:
        hint = str(name.name_hint)
        if hint not in self._functions:
            self._functions[hint] = self._function_names.function(hint)
        return self._functions[hint]

    def _comment(self, ty: ir.Type) -> str:
        text = self._type(ty) if self._typed else None
        return "" if text is None else f" /* ty={text} */"

    def _type(self, ty: ir.Type) -> str | None:
        """Return a type's text; many calls have the same one."""
        key = graph.key(ty)
        if key not in self._types:
            self._types[key] = literals.write_type(ty)
        return self._types[key]
