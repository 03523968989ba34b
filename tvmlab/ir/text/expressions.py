"""Expressions of Relay text to Relax: what is computed is bound before it is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import TvmlabError
from .. import depth, gone, operators, table
from ..graph import has_type, key, typed
from . import lexer, literals
from .cursor import Cursor, compatible, type_text
from .lexer import Token

assert operators  # the import fills the table

_NESTED = (relax.TupleType, relax.FuncType)
COMPUTED = (relax.Call, relax.TupleGetItem, relax.Function, relax.If)
"""What Relax binds before it can be an argument."""
_BINDS = {
    **dict.fromkeys(("==", "!="), 0),
    **dict.fromkeys(("<", ">", "<=", ">="), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/", 3),
}
_INFIX = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide"},
    **{"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    **{"==": "equal", "!=": "not_equal"},
}


class Scope:
    """The names that a body sees, and the builder that takes its bindings."""

    def __init__(self, outer: Scope | None) -> None:
        self.names: dict[str, relax.Expr] = {}
        self.outer = outer
        self.builder = relax.BlockBuilder()
        self.depth: int = outer.depth + 1 if outer else 1

    def find(self, name: str) -> relax.Expr | None:
        """Return what a name stands for here or outside, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def all_names(self) -> Iterable[str]:
        """Go through all names that are seen here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer


class Signature(NamedTuple):
    """What stands before a function's body; `at` is the index of the body's first token."""

    token: Token
    parameters: list[tuple[Token, ir.Type | None]]
    attributes: dict[str, Any]
    result: tuple[Token, ir.Type | None] | None
    at: int


class Expressions(Cursor):
    """Reads expressions; the reader of whole texts adds functions and bodies."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # The parameters of a bare body, in the order of the text.
        self.free: dict[str, relax.Var] = {}
        self.outermost: Scope | None = None
        self.literals: dict[str, ir.GenericConst] = {}
        self.types: dict[tuple[Any, ...], ir.Type] = {}
        self.interned: dict[int, list[ir.Type]] = {}
        self.sizes: dict[int, tuple[int, int, relax.Expr]] = {}
        self.binding: list[str] = []  # by let, outermost first

    def global_variable(self, token: Token) -> ir.GlobalVar:
        """Return the typed global variable of ``@name``."""
        raise NotImplementedError

    def signature(self, token: Token) -> Signature:
        """Read a function from its parameters up to its body."""
        raise NotImplementedError

    def function(
        self, signature: Signature, outer: Scope | None, is_main: bool = False
    ) -> relax.Function:
        """Read a function's body, and make the function."""
        raise NotImplementedError

    def scope(self, outer: Scope | None, token: Token) -> Scope:
        """Open a scope."""
        raise NotImplementedError

    def block(self, scope: Scope, variables: list[relax.Var]) -> relax.SeqExpr:
        """Read a body in braces."""
        raise NotImplementedError

    def emit(self, value: relax.Expr, scope: Scope, token: Token, name: str = "") -> relax.Expr:
        """Bind a value, and have TVM find its type."""
        bound = self.placed(token, scope.builder.emit, value, name)
        if isinstance(bound.ty, _NESTED):
            self.sizes[key(bound)] = (*self.size(value), bound)
        return bound

    def size(self, value: relax.Expr) -> tuple[int, int]:
        """Return how deep a value's type is, and how many parts it has."""
        found = self.sizes.get(key(value))
        return found[:2] if found else depth.type_size(value.ty, {})

    def checked(
        self, token: Token, whole: relax.Expr, parts: Iterable[tuple[int, int]]
    ) -> relax.Expr:
        """Refuse a tuple or function with a huge type, which grows fast where parts repeat."""
        size = depth.whole(parts)
        if depth.too_large(size):
            raise self.error(
                token,
                f"The type of this has more than {depth.MAX_TYPE_PARTS} parts "
                f"or nests deeper than {depth.MAX_TYPE_DEPTH} levels",
                "use flat tuples",
            )
        self.sizes[key(whole)] = (*size, whole)
        return whole

    def leaf(self, scope: Scope, least: int = 0) -> relax.Expr:
        """Read an expression as an argument: what is computed is bound first."""
        token = self.token
        return self.bound(self.expression(scope, least), scope, token)

    def bound(self, value: relax.Expr, scope: Scope, token: Token) -> relax.Expr:
        """Bind a value if it is computed."""
        return self.emit(value, scope, token) if isinstance(value, COMPUTED) else value

    def expression(self, scope: Scope, least: int = 0) -> relax.Expr:
        """Read an expression of infix operators that bind at least so much.

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
        start = self.token
        negative = False
        while self.accept("-"):
            negative = not negative
        token = self.token
        if negative and self.accept("NUMBER"):
            return self.placed(token, literals.read_literal, token.value, True)
        value = self.atom(scope)
        while self.token.kind in ("(", "FIELD"):
            value = self.bound(value, scope, token)
            if self.accept("("):
                value = self.call(value, scope, token)
            else:
                field = self.take("FIELD")
                value = self.field(field, value, field.value[1:])
        if negative:
            value = self.operation(start, "negative", [self.bound(value, scope, token)], {})
        return value

    def atom(self, scope: Scope) -> relax.Expr:
        """Read what is no call, no field and no sum."""
        token = self.token
        self.at += 1
        match token.kind:
            case "LOCAL":
                return self.local(token, scope)
            case "GRAPH":
                found = scope.find(token.value[1:])
                if found is None:
                    names = (f"%{name}" for name in scope.all_names())
                    raise self.unknown(token, "value", names)
                return found
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
        return self.checked(token, relax.Tuple(fields), map(self.size, fields))

    def local(self, token: Token, scope: Scope) -> relax.Expr:
        """Look a variable up; fields can stand behind its name: ``%x.0``."""
        name, fields = token.value[1:], list[str]()
        found = scope.find(name)
        while found is None:
            head, dot, field = name.rpartition(".")
            if not dot or not field.isdigit():
                break
            name = head
            fields.append(field)
            found = scope.find(name)
        if found is None and name in self.binding:
            raise self.error(
                token,
                f"A nested function cannot call itself: %{name} is not bound yet",
                "make it a function of the module: def @name(...)",
            )
        if found is None and self.outermost is not None:
            return self.parameter(token.value[1:], None)
        if found is None:
            raise self.unknown(token, "value", (f"%{name}" for name in scope.all_names()))
        for index in reversed(fields):
            found = self.field(token, self.bound(found, scope, token), index)
        return found

    def field(self, token: Token, value: relax.Expr, index: str) -> relax.Expr:
        """Take a field of a tuple."""
        if not isinstance(value.ty, relax.TupleType):
            what = f"{type_text(value.ty)} has no field {index}"
            raise self.error(token, what, "take it of a tuple")
        count = len(value.ty.fields)
        if len(index) > 9 or int(index) >= count:
            what = f"A tuple of {count} has no field {index[:9]}"
            raise self.error(token, what, "fields count from 0")
        return relax.TupleGetItem(value, int(index))

    def branch(self, token: Token, scope: Scope) -> relax.Expr:
        """Read a condition and what follows from it."""
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
            raise self.error(
                token,
                f"One branch gives {type_text(then.ty)}, the other {type_text(other.ty)}",
                "let both give the same type",
            )
        return relax.If(test, then, other)

    def call(self, function: relax.Expr, scope: Scope, token: Token) -> relax.Expr:
        """Read a call of a function from its arguments on."""
        operands = []
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                what = "A call of a function has no attributes in Relax"
                raise self.error(self.token, what, "drop them")
            operands.append(self.leaf(scope))
        if isinstance(function.ty, relax.FuncType):
            expected = function.ty.params
            if expected is not None and len(expected) != len(operands):
                what = f"{token.value} takes {len(expected)} arguments, not {len(operands)}"
                raise self.error(token, what)
        return relax.Call(function, operands)

    def operator_call(self, token: Token, scope: Scope) -> relax.Expr:
        """Read a call of an operator from its arguments on."""
        if not self.accept("("):
            if table.find(token.value) is None:
                raise self.error(token, *gone.unknown_operator(token.value))
            raise self.error(
                token,
                f"{token.value}: an operator alone is no value in Relax",
                "call it, or write a function that does",
            )
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
        if name == "on_device" and len(operands) == 1:  # where it is computed is not Relax's
            return operands[0]
        row = table.find(name)
        if row is None:
            raise self.error(token, *gone.unknown_operator(name))
        if len(operands) != len(row.operands):
            raise self.error(
                token,
                f"{name} takes {len(row.operands)} operands ({', '.join(row.operands)}), "
                f"not {len(operands)}",
            )
        try:
            values = table.complete_attributes(row, given)
            for kind in ("dtype", "out_dtype"):
                if values.get(kind):
                    literals.read_dtype(values[kind])
            value = self.remembered(row.name, row.to_relax(operands, values), values)
        except Exception as problem:
            self.refuse(token, problem)
        # TVM infers extents below zero without a word.
        shape = getattr(value.ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr) and (
            len(shape.values) > literals.MAX_RANK
            or any(isinstance(one, tvm.tirx.IntImm) and one.value < 0 for one in shape.values)
        ):
            what = f"The result would be {type_text(value.ty)}"
            raise self.error(token, what, "check attributes and shapes")
        return value

    def remembered(self, name: str, value: relax.Expr, values: dict[str, Any]) -> relax.Expr:
        """Type a call, from memory if a call of the same types has been typed before.

        TVM takes a millisecond to infer the type of a convolution.
        """
        if not isinstance(value, relax.Call) or has_type(value):
            return value
        if not all(isinstance(arg, (relax.Var, ir.GenericConst)) for arg in value.args):
            return value
        types = [self.same(arg.ty) for arg in value.args]
        signature = (name, repr(values), *map(key, types))
        if signature in self.types:
            relax.expr._update_type(value, self.types[signature])
        else:
            self.types[signature] = typed(value).ty
        return value

    def same(self, type_: ir.Type) -> ir.Type:
        """Return one object for all equal types, which stays while the text is read."""
        found = self.interned.setdefault(tvm_ffi.structural_hash(type_), [])
        for other in found:
            if tvm_ffi.structural_equal(type_, other):
                return other
        found.append(type_)
        return type_

    def parameter(self, name: str, type_: ir.Type | None) -> relax.Var:
        """Make a parameter of what is free in a bare body."""
        return self.bind_free(relax.Var(name, type_ or relax.TensorType(dtype=None)))

    def bind_free(self, var: relax.Var) -> relax.Var:
        """Have a parameter stand for a name in the whole body."""
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
            type_ = relax.TensorType(result.shape, dtype)
            typed_ = {name: relax.Var(name, type_) for name in new}
            trial = [typed_.get(getattr(one, "name", ""), one) for one in operands]
            try:
                value = typed(self.operation(token, token.value, trial, values))
            except TvmlabError:
                continue
            if has_type(value) and compatible(result, value.ty):
                for name in new:
                    self.bind_free(typed_[name])
                return trial
        return operands
