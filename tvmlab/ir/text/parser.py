"""Functions and expressions of Relay text to Relax.

Each Relay call becomes one Relax call (see `tvmlab.ir.table`). A computed value is bound before it
becomes an argument.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import TvmlabError
from .. import gone, operators, table
from ..graph import MAX_SCOPES, Sizes, check_size, has_type, key, typed
from . import lexer, literals
from .cursor import Cursor, compatible, type_text
from .lexer import Token

assert operators  # the import fills the table

COMPUTED = (relax.Call, relax.TupleGetItem, relax.Function, relax.If)
"""What Relax binds before it can be an argument."""
_BINDS = {"==": 0, "!=": 0, "<": 1, ">": 1, "<=": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3}
_INFIX = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide"},
    **{"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    **{"==": "equal", "!=": "not_equal"},
}


class Scope:
    """The names that a body sees, and the builder that takes its bindings."""

    def __init__(self, outer: Scope | None) -> None:
        self.names: ChainMap[str, relax.Expr] = outer.names.new_child() if outer else ChainMap()
        self.builder = relax.BlockBuilder()
        self.empty = True


class Signature(NamedTuple):
    """A function before its body; `at` is the index of the body's first token."""

    token: Token
    parameters: list[tuple[Token, ir.Type | None]]
    attributes: dict[str, Any]
    result: tuple[Token, ir.Type | None] | None
    at: int


class Parser(Cursor):
    """Reads functions, bodies and expressions."""

    def __init__(self, text: str, params: Mapping[str, relax.Expr]) -> None:
        super().__init__(text)
        self.params = params
        # The parameters of a bare body, in the order of the text.
        self.free: dict[str, relax.Var] = {}
        self.outermost: Scope | None = None
        self.literals: dict[str, ir.GenericConst] = {}
        self.types: dict[tuple[Any, ...], ir.Type] = {}
        self.interned: dict[int, list[ir.Type]] = {}
        self.sizes: Sizes = {}
        self.binding: list[str] = []  # by let, outermost first
        self.fragment = False
        # By the index of an opening brace: that of the closing one, and whether braces are within.
        self.closing: dict[int, int] = {}
        self.nesting: set[int] = set()
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "{":
                self.nesting.update(opened[-1:])
                opened.append(index)
            elif token.kind == "}" and opened:
                self.closing[opened.pop()] = index

    def global_variable(self, token: Token) -> ir.GlobalVar:
        """Return the typed global variable of ``@name``."""
        raise NotImplementedError

    def emit(self, value: relax.Expr, scope: Scope, token: Token, name: str = "") -> relax.Expr:
        """Bind a value, and have TVM find its type."""
        bound = self.placed(token, scope.builder.emit, value, name)
        scope.empty = False
        return self.checked(token, bound)

    def checked(self, token: Token, value: relax.Expr) -> relax.Expr:
        """Refuse a value with a huge type, which grows fast where parts repeat."""
        self.placed(token, check_size, value, self.sizes)
        return value

    def leaf(self, scope: Scope, least: int = 0) -> relax.Expr:
        """Read an expression as an argument: a computed value is bound first."""
        token = self.token
        return self.bound(self.expression(scope, least), scope, token)

    def bound(self, value: relax.Expr, scope: Scope, token: Token) -> relax.Expr:
        """Bind a value if it is computed."""
        return self.emit(value, scope, token) if isinstance(value, COMPUTED) else value

    def expression(self, scope: Scope, least: int = 0) -> relax.Expr:
        """Read an expression of infix operators of at least this precedence.

        Its arguments are bound, and it is not.
        """
        self.deeper()
        value = self.operand(scope)
        while _BINDS.get(self.token.kind, -1) >= least:
            sign = self.token
            self.at += 1
            left = self.bound(value, scope, sign)
            right = self.leaf(scope, _BINDS[sign.kind] + 1)
            value = self.operation(sign, _INFIX[sign.kind], [left, right], {})
        self.depth -= 1
        return value

    def operand(self, scope: Scope) -> relax.Expr:
        """Read minus signs, an atom, and the calls and fields behind it."""
        start, negative = self.token, False
        while self.accept("-"):
            negative = not negative
        token = self.token
        if negative and self.accept("NUMBER"):
            return self.placed(token, literals.read_literal, token.value, True)
        value = self.atom(scope)
        while self.token.kind in ("(", "FIELD"):
            value, mark = self.bound(value, scope, token), self.take("(", "FIELD")
            if mark.kind == "(":
                value = self.call(value, scope, token)
            else:
                value = self.field(mark, value, mark.value[1:])
        if negative:
            value = self.operation(start, "negative", [self.bound(value, scope, token)], {})
        return value

    def atom(self, scope: Scope) -> relax.Expr:
        """Read an expression that is no call, no field and no sum."""
        token = self.token
        self.at += 1
        match token.kind:
            case "LOCAL":
                return self.local(token, scope)
            case "GRAPH":
                if token.value[1:] not in scope.names:
                    raise self.unknown(token, "value", [f"%{name}" for name in scope.names])
                return scope.names[token.value[1:]]
            case "NUMBER" | "BOOL":
                if token.value not in self.literals:
                    made = self.placed(token, literals.read_literal, token.value)
                    self.literals[token.value] = made
                return self.literals[token.value]
            case "META":
                free = self.outermost is not None and self.metadata.start is None
                if not free or "relay.Constant" not in token.value:
                    return self.placed(token, self.metadata.constant, token.value)
                return self.free.get(token.value) or self.parameter(token.value, self.stated(token))
            case "NAME":
                return self.operator_call(token, scope)
            case "GLOBAL":
                return self.global_variable(token)
            case "(":
                return self.parentheses(token, scope)
            case "fn":
                return self.function(self.signature(token), scope)
            case "if":
                return self.branch(token, scope)
        self.at -= 1
        raise self.unexpected("an expression")

    def parentheses(self, token: Token, scope: Scope) -> relax.Expr:
        """Read a tuple, or an expression in parentheses."""
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

    def local(self, token: Token, scope: Scope) -> relax.Expr:
        """Look a variable up; fields can stand behind its name: ``%x.0``."""
        name, fields = token.value[1:], list[str]()
        while name not in scope.names:
            head, dot, field = name.rpartition(".")
            if not dot or not field.isdigit():
                break
            name = head
            fields.append(field)
        if name not in scope.names:
            if name in self.binding:
                what = f"A nested function cannot call itself: %{name} is not bound yet"
                raise self.error(token, what, "define it as a function of the module: def @name()")
            if self.outermost is None:
                raise self.unknown(token, "value", [f"%{name}" for name in scope.names])
            return self.parameter(token.value[1:], None)
        found = scope.names[name]
        for index in reversed(fields):
            found = self.field(token, self.bound(found, scope, token), index)
        return found

    def field(self, token: Token, value: relax.Expr, index: str) -> relax.Expr:
        """Take a field of a tuple."""
        if not isinstance(value.ty, relax.TupleType):
            what = f"{type_text(value.ty)} has no field {index}"
            raise self.error(token, what, "only tuples have fields")
        count = len(value.ty.fields)
        if len(index) > 9 or int(index) >= count:
            what = f"A tuple of {count} has no field {index[:9]}"
            raise self.error(token, what, "fields count from 0")
        return relax.TupleGetItem(value, int(index))

    def branch(self, token: Token, scope: Scope) -> relax.Expr:
        """Read a condition and its two branches."""
        self.take("(")
        place = self.token
        test = self.leaf(scope)
        self.take(")")
        if not compatible(relax.TensorType([], "bool"), test.ty):
            what = f"A condition is bool without axes, not {type_text(test.ty)}"
            raise self.error(place, what)
        then = self.block(self.scope(scope, token), [])
        self.take("else")
        other = self.block(self.scope(scope, token), [])
        if not compatible(then.ty, other.ty):
            what = f"One branch gives {type_text(then.ty)}, the other {type_text(other.ty)}"
            raise self.error(token, what, "let both give the same type")
        return relax.If(test, then, other)

    def call(self, function: relax.Expr, scope: Scope, token: Token) -> relax.Expr:
        """Read a call of a function from its arguments on."""
        operands = []
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                what = "A call of a function has no attributes in Relax"
                raise self.error(self.token, what, "drop them")
            operands.append(self.leaf(scope))
        expected = getattr(function.ty, "params", None)
        if expected is not None and len(expected) != len(operands):
            what = f"{token.value} takes {len(expected)} arguments, not {len(operands)}"
            raise self.error(token, what)
        return relax.Call(function, operands)

    def operator_call(self, token: Token, scope: Scope) -> relax.Expr:
        """Read a call of an operator from its arguments on."""
        if not self.accept("("):
            if table.find(token.value) is None:
                raise self.error(token, *gone.unknown_operator(token.value))
            what = f"{token.value}: an operator alone is no value in Relax"
            raise self.error(token, what, "call it, or write a function that does")
        operands: list[relax.Expr] = []
        values: dict[str, Any] = {}
        before, simple = set(self.free), True
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                self.attribute(values)
                continue
            start = self.at
            operands.append(self.leaf(scope))
            simple = simple and self.at == start + 1
        new = {name for name in self.free.keys() - before if not name.startswith("meta[")}
        if simple and new and getattr(operands[0], "name", None) in new:
            operands = self.guessed(token, operands, new, values)
        return self.operation(token, token.value, operands, values)

    def operation(
        self, token: Token, name: str, operands: list[relax.Expr], given: dict[str, Any]
    ) -> relax.Expr:
        """Call an operator of the table."""
        row = table.find(name)
        if row is None:
            raise self.error(token, *gone.unknown_operator(name))
        wanted = f"{len(row.operands)} operands ({', '.join(row.operands)})"
        if len(operands) != len(row.operands):
            raise self.error(token, f"{name} takes {wanted}, not {len(operands)}")
        value = self.placed(token, self.typed_call, row, operands, given)
        # TVM infers extents below zero without an error.
        shape = getattr(value.ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr) and (
            len(shape.values) > literals.MAX_RANK
            or any(isinstance(one, tvm.tirx.IntImm) and one.value < 0 for one in shape.values)
        ):
            what = f"The result would be {type_text(value.ty)}"
            raise self.error(token, what, "check attributes and shapes")
        return value

    def typed_call(
        self, row: table.Operator, operands: list[relax.Expr], given: dict[str, Any]
    ) -> relax.Expr:
        """Make a call with its type, from memory if a call of the same types has been typed before.

        TVM takes a millisecond to infer the type of a convolution.
        """
        values = table.complete_attributes(row, given)
        for kind in ("dtype", "out_dtype"):
            if values.get(kind):
                literals.read_dtype(values[kind])
        value: relax.Expr = row.to_relax(operands, values)
        if not isinstance(value, relax.Call) or has_type(value):
            return value
        if not all(isinstance(arg, (relax.Var, ir.GenericConst)) for arg in value.args):
            return value
        types = [self.interned_type(arg.ty) for arg in value.args]
        signature = (row.name, repr(values), *map(key, types))
        if signature in self.types:
            relax.expr._update_type(value, self.types[signature])
        else:
            self.types[signature] = typed(value).ty
        return value

    def interned_type(self, type_: ir.Type) -> ir.Type:
        """Return one object for all equal types, which lives while the text is read."""
        found = self.interned.setdefault(tvm_ffi.structural_hash(type_), [])
        for other in found:
            if tvm_ffi.structural_equal(type_, other):
                return other
        found.append(type_)
        return type_

    def parameter(self, name: str, type_: ir.Type | None) -> relax.Var:
        """Make a parameter for a free variable of a bare body."""
        return self.bind_free(relax.Var(name, type_ or relax.TensorType(dtype=None)))

    def bind_free(self, var: relax.Var) -> relax.Var:
        """Bind a free name to a parameter in the whole body."""
        assert self.outermost is not None
        self.free[var.name] = self.outermost.names[var.name] = var
        return var

    def stated(self, token: Token) -> ir.Type | None:
        """Return the type in the comment behind a token."""
        comment = lexer.type_comment(self.text, token)
        return Cursor(comment).type() if comment else None

    def guessed(
        self, token: Token, operands: list[relax.Expr], new: set[str], values: dict[str, Any]
    ) -> list[relax.Expr]:
        """Give new parameters the type with which a call has the type stated behind it."""
        result = self.stated(self.tokens[self.at - 1])
        if not isinstance(result, relax.TensorType):
            return operands
        for dtype in (str(result.dtype), "float32"):
            variables = {
                name: relax.Var(name, relax.TensorType(result.shape, dtype)) for name in new
            }
            trial = [variables.get(getattr(one, "name", ""), one) for one in operands]
            try:
                value = typed(self.operation(token, token.value, trial, values))
            except TvmlabError:
                continue
            if has_type(value) and compatible(result, value.ty):
                for var in variables.values():
                    self.bind_free(var)
                return trial
        return operands

    def signature(self, token: Token) -> Signature:
        """Read a function from its parameters up to its body; `token` is where errors point."""
        if self.token.kind in ("[", "<"):
            what = "Type parameters have no counterpart in Relax"
            raise self.error(self.token, what, "write the function once for each type")
        self.take("(")
        parameters: dict[str, tuple[Token, ir.Type | None]] = {}
        attributes: dict[str, Any] = {}
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                self.attribute(attributes)
                continue
            if self.next_is("NAME", ":"):
                fix = f"parameters are written %{self.token.value}: Tensor[(1), float32]"
                raise self.error(self.token, "A parameter's name begins with %", fix)
            parameter = self.take("LOCAL")
            if parameter.value in parameters:
                what = f"{parameter.value} is a parameter twice"
                raise self.error(parameter, what, "rename one of them")
            parameters[parameter.value] = (parameter, self.declared_type(":"))
        result = None
        if self.next_is("->"):
            result = (self.tokens[self.at + 1], self.declared_type("->"))
        return Signature(token, list(parameters.values()), attributes, result, self.at)

    def function(
        self, signature: Signature, outer: Scope | None, is_main: bool = False
    ) -> relax.Function:
        """Read a function's body, and make the function."""
        scope = self.scope(outer, signature.token)
        variables = []
        for token, declared in signature.parameters:
            name, type_ = token.value[1:], declared or relax.TensorType(dtype=None)
            given = self.params.get(name) if is_main else None
            if given is None:
                variables.append(relax.Var(name, type_))
            elif not compatible(type_, given.ty):
                what = f"params has {type_text(given.ty)} for %{name}, which is {type_text(type_)}"
                raise self.error(token, what, "give it the shape and dtype that are declared")
            scope.names[name] = variables[-1] if given is None else given
        sequence = self.block(scope, variables)
        if signature.result is not None:
            token, wanted = signature.result
            if wanted is not None and not compatible(wanted, sequence.ty):
                what = f"The result is declared {type_text(wanted)} and is {type_text(sequence.ty)}"
                raise self.error(token, what, "declare the type of the body")
        found = dict(signature.attributes)
        if "Compiler" in found:  # the name that Relax's code generation reads
            found.setdefault("Codegen", found["Compiler"])
        attrs = ir.make_node("ir.DictAttrs", **found) if found else None
        return self.checked(signature.token, relax.Function(variables, sequence, attrs=attrs))

    def scope(self, outer: Scope | None, token: Token) -> Scope:
        """Open a scope."""
        scope = Scope(outer)
        if len(scope.names.maps) > MAX_SCOPES:
            raise self.error(token, f"Functions nest deeper than {MAX_SCOPES} levels here")
        return scope

    def block(self, scope: Scope, variables: list[relax.Var]) -> relax.SeqExpr:
        """Read a body in braces."""
        plain = self.at not in self.nesting
        self.take("{")
        sequence = self.sequence(scope, variables, plain)
        self.take("}")
        return sequence

    def sequence(
        self, scope: Scope, variables: list[relax.Var], plain: bool, bare: bool = False
    ) -> relax.SeqExpr:
        """Read a body to one block of bindings and a result; a plain body is a dataflow block."""
        builder = scope.builder
        builder.begin_scope(variables)
        if plain:
            builder._begin_dataflow_block()
        else:
            builder._begin_binding_block()
        try:
            result = self.body(scope, plain, bare)
            if bare and not self.at_end():
                raise self.unexpected("; or the end")
        except BaseException:
            # A builder that is deleted with an open block complains on stderr.
            builder._end_block()
            builder.end_scope()
            raise
        block = builder._end_block()
        sequence = builder.normalize(relax.SeqExpr([block] if block.bindings else [], result))
        builder.end_scope()
        return sequence

    def body(self, scope: Scope, plain: bool, bare: bool) -> relax.Expr:
        """Emit a body's bindings and return its result, an output in a dataflow block.

        A bare body can end in a binding of ``%0``; it is a fragment then.
        """
        start = self.tokens[self.at - (self.tokens[self.at - 1].kind == "{")]
        self.fragment = False
        while not self.ends(self.at):
            token = self.token
            if self.accept("let"):
                token = self.take("LOCAL")
                value = self.let_value(token, scope)
                # `let %x = value; %x` is the output itself.
                if self.token.value == token.value and self.ends(self.at + 1):
                    self.at += 1
                    return self.output(value, scope, plain, token)
                scope.names[token.value[1:]] = self.emit(value, scope, token, token.value[1:])
            elif self.accept("free_var"):
                if not bare:
                    raise self.error(token, "free_var stands at the start of a bare body only")
                name = self.take("LOCAL").value[1:]
                self.parameter(name, self.declared_type(":"))
                self.take(";")
            elif self.next_is("GRAPH", "="):
                name = token.value[1:]
                if name in scope.names.maps[0]:
                    raise self.error(token, f"%{name} is bound twice", "number each binding once")
                self.at += 2
                value = self.expression(scope)
                self.take(";")
                self.fragment = bare and self.at_end()
                if self.fragment:
                    return self.result(value, scope, plain, token)
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
        """Return whether all but the metadata section has been read."""
        return self.token.kind in ("END", "METADATA")

    def result(self, value: relax.Expr, scope: Scope, plain: bool, token: Token) -> relax.Expr:
        """Return the result of a body, bound where Relax needs a binding."""
        if isinstance(value, relax.Var) and not plain:
            return value
        if isinstance(value, (relax.Var, ir.GenericConst)) and scope.empty:
            return value
        return self.output(value, scope, plain, token)

    def output(self, value: relax.Expr, scope: Scope, plain: bool, token: Token) -> relax.Expr:
        """Bind the result of a body."""
        if not plain:
            return self.emit(value, scope, token)
        return self.placed(token, scope.builder.emit_output, value)

    def let_value(self, token: Token, scope: Scope) -> relax.Expr:
        """Read what a `let` binds, which has the type that is declared."""
        wanted = self.declared_type(":")
        self.take("=")
        self.binding.append(token.value[1:])
        value = self.expression(scope)
        self.binding.pop()
        self.take(";")
        if wanted is not None and has_type(value) and not compatible(wanted, value.ty):
            what = f"{token.value} is declared {type_text(wanted)} and is {type_text(value.ty)}"
            raise self.error(token, what, "declare the type of the value")
        return value
