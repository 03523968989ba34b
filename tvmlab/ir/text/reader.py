"""Relay text to Relax: a recursive-descent parser that emits bindings as it reads.

Each Relay call becomes one Relax call (see `tvmlab.ir.table`). Values after ``%0 = `` are bound in
the order of the text, and a computed value is bound before it becomes an argument. Tuples,
constants and other names for the same value are not bound, because Relax takes them as arguments.
`let` always binds.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import InputError, RelayError
from .. import gone, operators, table
from ..graph import MAX_SCOPES, Sizes, check_size, has_type, no_collection, typed
from . import literals
from .lexer import Cursor, Token
from .metadata import load_params

assert operators  # importing the module fills the table

COMPUTED = (relax.Call, relax.TupleGetItem, relax.Function, relax.If)
"""The classes of values that Relax must bind before they can be arguments."""
# The precedence of each infix operator, and its name as a call.
_INFIX = {
    **{"==": (0, "equal"), "!=": (0, "not_equal"), "<": (1, "less"), ">": (1, "greater")},
    **{"<=": (1, "less_equal"), ">=": (1, "greater_equal"), "+": (2, "add")},
    **{"-": (2, "subtract"), "*": (3, "multiply"), "/": (3, "divide")},
}
_UNKNOWN = relax.TensorType(dtype=None)


def fromtext(
    text: str | bytes,
    params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    functions: Mapping[ir.GlobalVar, Any] | None = None,
    metadata: Mapping[str, Sequence[Any]] | None = None,
) -> tvm.IRModule:
    """Read Relay text into Relax.

    Parameters
    ----------
    text : str or bytes
        A module, ``def @main(...) { ... }``, or one expression, whose variables, declared with
        ``free_var``, become the parameters of ``main``. Bytes must be UTF-8.
    params : dict of str to array, or path, optional
        Values for parameters of ``main``, which become constants; or the path of a file from
        `tvm.runtime.save_param_dict`.
    functions : dict of tvm.ir.GlobalVar to function, optional
        Functions that the text can call, which become part of the module.
    metadata : dict of str to list, optional
        The metadata of a text without that section: ``{"relay.Constant": [constant, ...]}``.

    Returns
    -------
    tvm.IRModule
        A Relax module.

    Raises
    ------
    RelayError
        The text cannot be read: it is malformed, uses an undefined name, or contains something
        without a form in Relax. The error has the line and column.
    InputError
        The argument is not text.

    Notes
    -----
    Relay prints scalar constants with six digits, so the scales of a quantized network are
    rounded. A model read from text alone can therefore compute other integers than the original.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
    except (AttributeError, UnicodeDecodeError) as error:
        wrong = "not UTF-8" if isinstance(text, bytes) else f"not a {type(text).__name__}"
        fix = "pass the result of astext, or a file's read_text()"
        what = f"fromtext takes Relay text; its argument is {wrong}"
        raise InputError(what, where=f"fromtext({text!r:.60})", fix=fix) from error
    with no_collection():
        if isinstance(params, (str, os.PathLike)):
            params = load_params(params)
        values = {name: _constant(name, value) for name, value in (params or {}).items()}
        return _Reader(text, values, functions or {}, metadata).module()


def _constant(name: str, value: Any) -> ir.GenericConst:
    if isinstance(value, ir.GenericConst):
        return value
    if not isinstance(value, (np.ndarray, np.generic, tvm.runtime.Tensor)):
        what = f"params has a {type(value).__name__} for {name!r}"
        raise InputError(what, fix="give a NumPy array or a tensor")
    return relax.const(value, str(value.dtype))  # without the dtype TVM converts 64 bits to 32


class _Scope:
    """The names visible in a body, and the builder of its bindings."""

    def __init__(self, outer: _Scope | None) -> None:
        self.names: ChainMap[str, Any] = outer.names.new_child() if outer else ChainMap()
        self.builder = relax.BlockBuilder()
        self.empty = True


class _Signature(NamedTuple):
    """A function without its body; `at` is the index of the body's first token."""

    token: Token
    parameters: list[tuple[Token, ir.Type | None]]
    attributes: dict[str, Any]
    result: ir.Type | None
    at: int


class _Reader(Cursor):
    def __init__(
        self,
        text: str,
        params: Mapping[str, relax.Expr],
        functions: Mapping[ir.GlobalVar, Any],
        metadata: Mapping[str, Sequence[Any]] | None,
    ) -> None:
        super().__init__(text)
        self.params, self.functions = params, functions
        self.signatures: dict[str, _Signature] = {}
        self.variables = {var.name_hint: var for var in functions}
        if metadata:
            if self.metadata.start is not None:
                what = "the text has a metadata section, and a table of metadata is given too"
                raise RelayError(what, fix="leave one of them out")
            self.metadata.entries = {key: list(values) for key, values in metadata.items()}
        self.free: list[relax.Var] = []  # the variables that free_var declares
        self.literals: dict[str, ir.GenericConst] = {}
        self.types: dict[tuple[Any, ...], ir.Type] = {}
        self.sizes: Sizes = {}
        # Maps an opening brace to the closing one, and to whether there are braces inside.
        self.closing: dict[int, int] = {}
        self.nesting: set[int] = set()
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "{":
                self.nesting.update(opened[-1:])
                opened.append(index)
            elif token.kind == "}" and opened:
                self.closing[opened.pop()] = index

    def module(self) -> tvm.IRModule:
        token = self.token
        if self.accept("VERSION") and token.value.split('"')[1] != "0.0.5":
            what = f"The text has {token.value[2:-1]}, not 0.0.5"
            raise self.error(token, what, "print it again with TVM 0.8 to 0.18")
        if self.next_is("def"):
            return self.definitions()
        if self.params:
            raise InputError("params needs a module with @main", fix="write def @main(...) { ... }")
        return tvm.IRModule({"main": self.bare()})

    def definitions(self) -> tvm.IRModule:
        while not self.at_end():
            self.take("def")
            token = self.take("GLOBAL")
            name = token.value[1:]
            if name in self.variables:
                raise self.error(token, f"{token.value} is defined twice", "rename one")
            signature = self.signatures[name] = self.signature(token)
            self.variables[name] = ir.GlobalVar(name)
            types = [type_ for _, type_ in signature.parameters]
            if signature.result and all(types) and not (name == "main" and self.params):
                relax.expr._update_type(
                    self.variables[name], relax.FuncType(types, signature.result)
                )
            self.at = self.closing.get(self.at, len(self.tokens) - 2) + 1
        main = self.signatures.get("main")
        names = [token.value[1:] for token, _ in main.parameters] if main else []
        for name in self.params:
            if name not in names:
                what = f"params has {name!r}, which is not a parameter of @main"
                raise InputError(what, fix=f"its parameters are {', '.join(names) or 'none'}")
        functions = dict(self.functions)
        for name, signature in self.signatures.items():
            self.at = signature.at
            made = self.function(signature, None, self.params if name == "main" else {})
            if name == "main" and "global_symbol" not in (made.attrs or {}):
                made = made.with_attr("global_symbol", "main")
            if not has_type(self.variables[name]):
                relax.expr._update_type(self.variables[name], made.ty)
            functions[self.variables[name]] = made
        return tvm.IRModule(functions)

    def global_variable(self, token: Token) -> ir.GlobalVar:
        found = self.variables.get(token.value[1:])
        if found is None:
            raise self.unknown(token, "function", [f"@{known}" for known in self.variables])
        if not has_type(found):
            what = f"{token.value} is called before its type is known"
            raise self.error(token, what, "declare its types, or define it before this function")
        return found

    def bare(self) -> relax.Function:
        """Read a function without a name, or a body without a function."""
        token = self.token
        if self.accept("fn"):
            made = self.function(self.signature(token), None, {})
            if not self.at_end():
                raise self.unexpected("nothing after the function")
            return made.with_attr("global_symbol", "main")
        plain = all(token.kind != "{" for token in self.tokens)
        sequence = self.sequence(self.scope(None, token), [], plain, bare=True)
        attrs = ir.make_node("ir.DictAttrs", global_symbol="main")
        return relax.Function(self.free, sequence, attrs=attrs)

    def signature(self, token: Token) -> _Signature:
        """Read a function from its parameters up to its body; errors point at `token`."""
        self.take("(")
        parameters: dict[str, tuple[Token, ir.Type | None]] = {}
        attributes: dict[str, Any] = {}
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                self.attribute(attributes)
                continue
            parameter = self.take("LOCAL")
            if parameter.value in parameters:
                raise self.error(parameter, f"{parameter.value} is declared twice", "rename one")
            parameters[parameter.value] = (parameter, self.declared_type(":"))
        result = self.declared_type("->")
        return _Signature(token, list(parameters.values()), attributes, result, self.at)

    def function(
        self, signature: _Signature, outer: _Scope | None, params: Mapping[str, relax.Expr]
    ) -> relax.Function:
        scope = self.scope(outer, signature.token)
        variables = []
        for token, declared in signature.parameters:
            name, type_ = token.value[1:], declared or _UNKNOWN
            scope.names[name] = params[name] if name in params else relax.Var(name, type_)
            self.check_type(token, f"{name!r} in params", type_, scope.names[name])
            if name not in params:
                variables.append(scope.names[name])
        sequence = self.block(scope, variables)
        self.check_type(signature.token, "The result", signature.result, sequence)
        found = dict(signature.attributes)
        if "Compiler" in found:  # the attribute that Relax's code generation reads
            found.setdefault("Codegen", found["Compiler"])
        attrs = ir.make_node("ir.DictAttrs", **found) if found else None
        return self.checked(signature.token, relax.Function(variables, sequence, attrs=attrs))

    def check_type(
        self, token: Token, what: str, wanted: ir.Type | None, value: relax.Expr
    ) -> None:
        """Refuse a value that cannot have a wanted type; unknown types always match."""
        if wanted is not None and has_type(value):
            result = relax.analysis.type_base_check(wanted, value.ty)
            if result == relax.analysis.BaseCheckResult.FAIL_L0:
                what = f"{what} is {_text(value.ty)}, but {_text(wanted)} is declared or needed"
                raise self.error(token, what, "use the same shape and dtype in both places")

    def scope(self, outer: _Scope | None, token: Token) -> _Scope:
        scope = _Scope(outer)
        if len(scope.names.maps) > MAX_SCOPES:
            raise self.error(token, f"Functions nest deeper than {MAX_SCOPES} levels here")
        return scope

    def block(self, scope: _Scope, variables: list[relax.Var]) -> relax.SeqExpr:
        plain = self.at not in self.nesting
        self.take("{")
        sequence = self.sequence(scope, variables, plain)
        self.take("}")
        return sequence

    def sequence(
        self, scope: _Scope, variables: list[relax.Var], plain: bool, bare: bool = False
    ) -> relax.SeqExpr:
        """Read a body into one block of bindings and a result; a plain body is a dataflow block."""
        builder = scope.builder
        builder.begin_scope(variables)
        (builder._begin_dataflow_block if plain else builder._begin_binding_block)()
        try:
            result = self.body(scope, plain, bare)
            if bare and not self.at_end():
                raise self.unexpected("; or the end")
        finally:  # deleting a builder with an open block prints a warning
            block = builder._end_block()
        sequence = builder.normalize(relax.SeqExpr([block] if block.bindings else [], result))
        builder.end_scope()
        return sequence

    def body(self, scope: _Scope, plain: bool, bare: bool) -> relax.Expr:
        """Emit a body's bindings and return its result, an output in a dataflow block."""
        start = self.tokens[self.at - (self.tokens[self.at - 1].kind == "{")]
        while not self.ends(self.at):
            token = self.token
            if self.accept("let"):
                token = self.take("LOCAL")
                name, wanted = token.value[1:], self.declared_type(":")
                self.take("=")
                scope.names.setdefault(name, None)  # a function cannot call itself
                value = self.expression(scope)
                self.take(";")
                self.check_type(token, token.value, wanted, value)
                # `let %x = value; %x` is itself the output.
                if self.token.value == token.value and self.ends(self.at + 1):
                    self.at += 1
                    return self.output(value, scope, plain, token)
                scope.names[name] = self.emit(value, scope, token, name)
            elif self.accept("free_var"):
                if not bare:
                    raise self.error(token, "free_var must be at the beginning of the text")
                name = self.take("LOCAL").value[1:]
                scope.names[name] = relax.Var(name, self.declared_type(":") or _UNKNOWN)
                self.free.append(scope.names[name])
                self.take(";")
            elif self.next_is("GRAPH", "="):
                name = token.value[1:]
                if name in scope.names.maps[0]:
                    raise self.error(token, f"%{name} is bound twice", "use each number once")
                self.at += 2
                value = self.expression(scope)
                self.take(";")
                scope.names[name] = self.bound(value, scope, token)
            else:
                value = self.expression(scope)
                if not self.accept(";"):
                    return self.result(value, scope, plain, token)
                self.bound(value, scope, token)
        if self.token.kind == "END" and not bare:
            raise self.unexpected("}")
        raise self.error(start, "A body has no result", "end it with an expression")

    def ends(self, at: int) -> bool:
        """Return whether a body ends at a token."""
        return self.tokens[at].kind in ("}", "END", "METADATA")

    def at_end(self) -> bool:
        """Return whether everything before the metadata section has been read."""
        return self.token.kind in ("END", "METADATA")

    def result(self, value: relax.Expr, scope: _Scope, plain: bool, token: Token) -> relax.Expr:
        """Return the result of a body, bound if Relax needs a binding."""
        if isinstance(value, relax.Var) and not plain:
            return value
        if isinstance(value, (relax.Var, ir.GenericConst)) and scope.empty:
            return value
        return self.output(value, scope, plain, token)

    def output(self, value: relax.Expr, scope: _Scope, plain: bool, token: Token) -> relax.Expr:
        if not plain:
            return self.emit(value, scope, token)
        return self.placed(token, scope.builder.emit_output, value)

    def emit(self, value: relax.Expr, scope: _Scope, token: Token, name: str = "") -> relax.Expr:
        """Bind a value and infer its type."""
        bound = self.placed(token, scope.builder.emit, value, name)
        scope.empty = False
        return self.checked(token, bound)

    def checked(self, token: Token, value: relax.Expr) -> relax.Expr:
        """Refuse a value with a huge type, which repeated parts make quickly."""
        self.placed(token, check_size, value, self.sizes)
        return value

    def bound(self, value: relax.Expr, scope: _Scope, token: Token) -> relax.Expr:
        return self.emit(value, scope, token) if isinstance(value, COMPUTED) else value

    def leaf(self, scope: _Scope, least: int = 0) -> relax.Expr:
        """Read an expression as an argument; a computed value is bound first."""
        token = self.token
        return self.bound(self.expression(scope, least), scope, token)

    def expression(self, scope: _Scope, least: int = 0) -> relax.Expr:
        """Read an expression of infix operators of at least this precedence.

        The arguments of the expression are bound, but the expression is not.
        """
        self.deeper()
        value = self.operand(scope)
        while self.token.kind in _INFIX and _INFIX[self.token.kind][0] >= least:
            sign = self.token
            self.at += 1
            binds, name = _INFIX[sign.kind]
            left = self.bound(value, scope, sign)
            value = self.operation(sign, name, [left, self.leaf(scope, binds + 1)], {})
        self.depth -= 1
        return value

    def operand(self, scope: _Scope) -> relax.Expr:
        """Read minus signs, an atom, and the calls and fields after it."""
        start, negative = self.token, False
        while self.accept("-"):
            negative = not negative
        token = self.token
        if negative and self.accept("NUMBER"):
            return self.placed(token, literals.read_literal, f"-{token.value}")
        value = self.atom(scope)
        while self.token.kind in ("(", "FIELD"):
            value, mark = self.bound(value, scope, token), self.take("(", "FIELD")
            if mark.kind == "(":
                value = relax.Call(value, [self.leaf(scope) for _ in self.items(")")])
            else:
                value = self.field(mark, value, mark.value[1:])
        if negative:
            value = self.operation(start, "negative", [self.bound(value, scope, token)], {})
        return value

    def atom(self, scope: _Scope) -> relax.Expr:
        """Read an expression that is not a call, a field or an infix operation."""
        token = self.token
        self.at += 1
        match token.kind:
            case "LOCAL" | "GRAPH":
                return self.local(token, scope)
            case "NUMBER" | "BOOL":
                if token.value not in self.literals:
                    made = self.placed(token, literals.read_literal, token.value)
                    self.literals[token.value] = made
                return self.literals[token.value]
            case "META":
                return self.placed(token, self.metadata.constant, token.value)
            case "NAME":
                return self.operator_call(token, scope)
            case "GLOBAL":
                return self.global_variable(token)
            case "(":
                return self.parentheses(token, scope)
            case "fn":
                return self.function(self.signature(token), scope, {})
            case "if":
                return self.branch(token, scope)
        self.at -= 1
        raise self.unexpected("an expression")

    def parentheses(self, token: Token, scope: _Scope) -> relax.Expr:
        fields: list[relax.Expr] = []
        while not self.accept(")"):
            start = self.token
            value = self.expression(scope)
            if not fields and self.accept(")"):
                return value
            fields.append(self.bound(value, scope, start))
            if not (len(fields) > 1 and self.next_is(")")):
                self.take(",")
        return self.checked(token, relax.Tuple(fields))

    def local(self, token: Token, scope: _Scope) -> relax.Expr:
        """Look up a variable; fields can follow its name: ``%x.0``."""
        name, fields = token.value[1:], list[str]()
        while name not in scope.names:
            head, dot, index = name.rpartition(".")
            if not dot or not index.isdigit():
                break
            name = head
            fields.append(index)
        found = scope.names.get(name)
        if found is None:
            known = [f"%{name}" for name, value in scope.names.items() if value is not None]
            raise self.unknown(token, "value", known)
        for index in reversed(fields):
            found = self.field(token, self.bound(found, scope, token), index)
        return found

    def field(self, token: Token, value: relax.Expr, index: str) -> relax.Expr:
        count = len(value.ty.fields) if isinstance(value.ty, relax.TupleType) else 0
        if len(index) > 9 or int(index) >= count:
            what = f"{_text(value.ty)[:80]} has no field {index[:9]}"
            raise self.error(token, what, "only tuples have fields, numbered from 0")
        return relax.TupleGetItem(value, int(index))

    def branch(self, token: Token, scope: _Scope) -> relax.Expr:
        self.take("(")
        place = self.token
        test = self.leaf(scope)
        self.take(")")
        self.check_type(place, "The condition", relax.TensorType([], "bool"), test)
        then = self.block(self.scope(scope, token), [])
        self.take("else")
        other = self.block(self.scope(scope, token), [])
        self.check_type(token, "The other branch", then.ty, other)
        return relax.If(test, then, other)

    def operator_call(self, token: Token, scope: _Scope) -> relax.Expr:
        if table.find(token.value) is None:
            raise self.error(token, *gone.unknown_operator(token.value))
        self.take("(")
        operands: list[relax.Expr] = []
        values: dict[str, Any] = {}
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                self.attribute(values)
            else:
                operands.append(self.leaf(scope))
        return self.operation(token, token.value, operands, values)

    def operation(
        self, token: Token, name: str, operands: list[relax.Expr], given: dict[str, Any]
    ) -> relax.Expr:
        """Make a call of an operator in the table."""
        row = table.find(name)
        assert row is not None, name
        if len(operands) != len(row.operands):
            wanted = f"{len(row.operands)} operands ({', '.join(row.operands)})"
            raise self.error(token, f"{name} takes {wanted}, not {len(operands)}")
        value = self.placed(token, self.typed_call, row, operands, given)
        # TVM infers negative extents without an error.
        shape = getattr(value.ty, "shape", None)
        sizes = shape.values if isinstance(shape, relax.ShapeExpr) else ()
        negative = any(isinstance(one, tvm.tirx.IntImm) and one.value < 0 for one in sizes)
        if negative or len(sizes) > literals.MAX_RANK:
            what = f"The result would be {_text(value.ty)}"
            raise self.error(token, what, "check attributes and shapes")
        return value

    def typed_call(
        self, row: table.Operator, operands: list[relax.Expr], given: dict[str, Any]
    ) -> relax.Expr:
        """Make a call with its type, cached by the operands' types and the attributes.

        Without the cache, TVM takes a millisecond to infer the type of a convolution.
        """
        values = table.complete_attributes(row, given)
        for kind in ("dtype", "out_dtype"):
            if values.get(kind):
                literals.read_dtype(values[kind])
        value: relax.Expr = row.to_relax(operands, values)
        plain = isinstance(value, relax.Call) and all(
            isinstance(arg, (relax.Var, ir.GenericConst)) for arg in value.args
        )
        if not plain or has_type(value):
            return value
        types = (tvm_ffi.StructuralKey(arg.ty) for arg in value.args)
        signature = (row.name, repr(values), *types)
        if signature in self.types:
            relax.expr._update_type(value, self.types[signature])
        else:
            self.types[signature] = typed(value).ty
        return value


def _text(type_: ir.Type) -> str:
    return str(type_).replace("R.", "") if type(type_) is not ir.Type else "of unknown type"
