"""The tree of an expression to Relax expressions whose arguments are bound."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError, TvmlabError
from .. import depth, gone, operators, table
from ..graph import key, known, typed
from ..refusals import reason
from . import lexer
from .constants import Constants
from .lexer import Token
from .syntax import Node
from .values import DROPPED, DTYPES, MAX_RANK, BoxedIndex, attribute, literal


class Scope:
    """The names that a body sees.

    Attributes
    ----------
    names : dict of str to Expr
        What ``%x`` and ``%0`` stand for here.
    outer : Scope or None
        Where the names stand that this one lacks.
    builder : relax.BlockBuilder
        Takes the bindings.
    """

    def __init__(self, outer: Scope | None) -> None:
        self.names: dict[str, relax.Expr] = {}
        self.outer = outer
        self.builder = relax.BlockBuilder()
        self.depth: int = outer.depth + 1 if outer else 1

    def find(self, name: str) -> relax.Expr | None:
        """Look a name up, here and then outside."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def all_names(self) -> Iterable[str]:
        """List what can be named."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer


class Expressions:
    """Turns expressions into Relax, for one text.

    Parameters
    ----------
    text : str
        All of it, which errors show a line of.
    constants : Constants
        The metadata section.
    """

    def __init__(self, text: str, constants: Constants) -> None:
        self.text, self.constants = text, constants
        self.types: dict[tuple[Any, ...], ir.Type] = {}
        self.interned: dict[int, list[ir.Type]] = {}
        self.binding: list[str] = []  # by let, outermost first
        self.sizes: dict[int, tuple[int, int, relax.Expr]] = {}

    def error(self, token: Token, what: str, fix: str | None = None) -> RelayError:
        """Make an error that points at a token."""
        return lexer.error(self.text, token.start, what, fix=fix)

    def unknown(self, token: Token, kind: str, names: Iterable[str]) -> RelayError:
        """Make the error for a name that is not there, with the nearest that is."""
        near = difflib.get_close_matches(token.value, list(names), n=1)
        fix = f"did you mean {near[0]}?" if near else "bind it before it is used"
        return self.error(token, f"There is no {kind} {token.value} here", fix)

    def emit(self, value: relax.Expr, scope: Scope, token: Token, name: str = "") -> relax.Expr:
        """Bind a value, and have TVM find its type."""
        try:
            bound = scope.builder.emit(value, name)
        except Exception as problem:
            self.refuse(token, problem)
        if isinstance(bound.ty, _NESTED):
            self.sizes[key(bound)] = (*self.size(value), bound)
        return bound

    def size(self, value: relax.Expr) -> tuple[int, int]:
        """Say how deep a value's type is, and how many parts it has."""
        found = self.sizes.get(key(value))
        return found[:2] if found else depth.type_size(value.ty, {})

    def nest(self, token: Token, whole: relax.Expr, parts: Iterable[tuple[int, int]]) -> relax.Expr:
        """Note the size of a tuple's or function's type, which grows fast where parts repeat."""
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

    def refuse(self, token: Token, problem: Exception) -> NoReturn:
        """Raise what an operator says about its operands, with the place in the text."""
        if isinstance(problem, RelayError) and problem.line is not None:
            raise problem
        if isinstance(problem, TvmlabError):
            raise self.error(token, problem.what, problem.fix) from problem
        raise self.error(
            token,
            f"Relax refuses this: {reason(problem)}",
            "check shapes and dtypes of the operands",
        ) from problem

    def leaf(self, node: Node, scope: Scope) -> relax.Expr:
        """Give an expression as an argument: what is computed is bound first."""
        value = self.value(node, scope)
        if isinstance(value, BINDING):
            return self.emit(value, scope, node.token)
        return value

    def value(self, node: Node, scope: Scope) -> relax.Expr:
        """Give an expression whose arguments are bound, and which is not."""
        return getattr(self, f"_{node.kind}")(node, scope)  # type: ignore[no-any-return]

    def _literal(self, node: Node, _: Scope) -> relax.Expr:
        return self.constants.literal(node.token, lambda: literal(self.text, node.token))

    def _negative(self, node: Node, scope: Scope) -> relax.Expr:
        (inner,) = node.items
        if inner.kind == "literal" and inner.token.type == "NUMBER":
            return literal(self.text, inner.token, negative=True)
        return self.operation(node.token, "negative", [self.leaf(inner, scope)], {})

    def _infix(self, node: Node, scope: Scope) -> relax.Expr:
        chain = []  # of a sum of many terms, from its end
        while node.kind == "infix":
            chain.append(node)
            node = node.items[0]
        value = self.value(node, scope)
        for link in reversed(chain):
            left = self.emit(value, scope, link.token) if isinstance(value, BINDING) else value
            right = self.leaf(link.items[1], scope)
            value = self.operation(link.token, _INFIX[link.token.value], [left, right], {})
        return value

    def _temporary(self, node: Node, scope: Scope) -> relax.Expr:
        found = scope.find(node.token.value[1:])
        if found is None:
            names = (f"%{name}" for name in scope.all_names())
            raise self.unknown(node.token, "value", names)
        return found

    def _local(self, node: Node, scope: Scope) -> relax.Expr:
        name, fields = node.token.value[1:], list[str]()
        found = scope.find(name)
        while found is None and (split := _FIELD.fullmatch(name)):
            name = split[1]
            fields.append(split[2])
            found = scope.find(name)
        if found is None and name in self.binding:
            raise self.error(
                node.token,
                f"A nested function cannot call itself: %{name} is not bound yet",
                "make it a function of the module: def @name(...)",
            )
        if found is None:
            names = (f"%{name}" for name in scope.all_names())
            raise self.unknown(node.token, "value", names)
        for index in reversed(fields):
            if isinstance(found, BINDING):
                found = self.emit(found, scope, node.token)
            found = self.field(node.token, found, index)
        return found

    def _projection(self, node: Node, scope: Scope) -> relax.Expr:
        inner, index = node.items
        return self.field(node.token, self.leaf(inner, scope), index)

    def field(self, token: Token, value: relax.Expr, index: str) -> relax.Expr:
        """Take a field of a tuple."""
        if not isinstance(value.ty, relax.TupleType):
            raise self.error(token, f"{said(value.ty)} has no field {index}", "take it of a tuple")
        if len(index) > 9 or int(index) >= len(value.ty.fields):
            count = len(value.ty.fields)
            raise self.error(
                token, f"A tuple of {count} has no field {index[:9]}", "fields count from 0"
            )
        return relax.TupleGetItem(value, int(index))

    def _tuple(self, node: Node, scope: Scope) -> relax.Expr:
        fields = [self.leaf(item, scope) for item in node.items]
        return self.nest(node.token, relax.Tuple(fields), map(self.size, fields))

    def _operator(self, node: Node, _: Scope) -> relax.Expr:
        if table.find(node.token.value) is None:
            raise self.error(node.token, *gone.unknown_operator(node.token.value))
        raise self.error(
            node.token,
            f"{node.token.value}: an operator alone is no value in Relax",
            "call it, or write a function that does",
        )

    def _meta(self, node: Node, _: Scope) -> relax.Expr:
        return self.constants.tensor(node.token)

    def _call(self, node: Node, scope: Scope) -> relax.Expr:
        callee, arguments, attributes = node.items
        if callee.kind == "operator":
            operands = [self.leaf(argument, scope) for argument in arguments]
            return self.operation(
                callee.token, callee.token.value, operands, self.attributes(attributes)
            )
        function = self.leaf(callee, scope)
        if attributes:
            raise self.error(
                attributes[0].token, "A call of a function has no attributes in Relax", "drop them"
            )
        if isinstance(function.ty, relax.FuncType):
            expected = function.ty.params
            if expected is not None and len(expected) != len(arguments):
                raise self.error(
                    callee.token,
                    f"{callee.token.value} takes {len(expected)} arguments, not {len(arguments)}",
                )
        return relax.Call(function, [self.leaf(argument, scope) for argument in arguments])

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
            values = table.coerce(row, given)
            for kind in ("dtype", "out_dtype"):
                if values.get(kind) and values[kind] not in DTYPES:
                    raise RelayError(f"There is no dtype {values[kind]}", fix="such as float32")
            value = self.remembered(row.name, row.read(operands, values), values)
            self.possible(token, value)
            return value
        except Exception as problem:
            self.refuse(token, problem)

    def remembered(self, name: str, value: relax.Expr, values: dict[str, Any]) -> relax.Expr:
        """Type a call; where one was typed before of the same types, without asking TVM again.

        TVM takes a millisecond to infer the type of a convolution.
        """
        if not isinstance(value, relax.Call) or known(value):
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

    def possible(self, token: Token, value: relax.Expr) -> None:
        """Refuse a result that no tensor can be: TVM infers extents below zero without a word."""
        shape = getattr(value.ty, "shape", None)
        if not isinstance(shape, relax.ShapeExpr):
            return
        extents = shape.values
        if len(extents) > MAX_RANK or any(
            isinstance(extent, tvm.tirx.IntImm) and extent.value < 0 for extent in extents
        ):
            raise self.error(
                token, f"The result would be {said(value.ty)}", "check attributes and shapes"
            )

    def same(self, type_: ir.Type) -> ir.Type:
        """Give one object for all equal types, which stays while the text is read."""
        found = self.interned.setdefault(tvm_ffi.structural_hash(type_), [])
        for other in found:
            if tvm_ffi.structural_equal(type_, other):
                return other
        found.append(type_)
        return type_

    def attributes(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """Read attributes, of a call or of a function."""
        found: dict[str, Any] = {}
        for node in nodes:
            name, value = attribute(self.text, node)
            if name in found:
                raise self.error(node.token, f"{name} is given twice", "give it once")
            if isinstance(value, BoxedIndex):
                value = self.constants.number(value.token)
            if value is not DROPPED:
                found[name] = value
        return found


def agrees(declared: ir.Type, found: ir.Type) -> bool:
    """Say whether a value may have a declared type; what is unknown on either side agrees."""
    if isinstance(declared, relax.TupleType) and isinstance(found, relax.TupleType):
        return len(declared.fields) == len(found.fields) and all(
            agrees(a, b) for a, b in zip(declared.fields, found.fields, strict=True)
        )
    if isinstance(declared, relax.FuncType) or isinstance(found, relax.FuncType):
        return isinstance(declared, relax.FuncType) and isinstance(found, relax.FuncType)
    if isinstance(declared, relax.TensorType) and isinstance(found, relax.TensorType):
        dtypes = [str(type_.dtype) for type_ in (declared, found) if type_.dtype is not None]
        if len(set(dtypes)) > 1:
            return False
        if -1 not in (declared.ndim, found.ndim) and declared.ndim != found.ndim:
            return False
        shapes = (declared.shape, found.shape)
        if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
            return True
        return all(
            not (isinstance(a, tvm.tirx.IntImm) and isinstance(b, tvm.tirx.IntImm))
            or int(a) == int(b)
            for a, b in zip(*shapes, strict=True)
        )
    kinds = (relax.TupleType, relax.TensorType)
    return not (isinstance(declared, kinds) and isinstance(found, kinds))


def said(type_: ir.Type) -> str:
    """Say a type in one line."""
    return str(type_).replace("R.", "") if type(type_) is not ir.Type else "of unknown type"


_NESTED = (relax.TupleType, relax.FuncType)
BINDING = (relax.Call, relax.TupleGetItem, relax.Function, relax.If)
_FIELD = re.compile(r"(.+)\.(\d+)")
_INFIX = {
    **{"+": "add", "-": "subtract", "*": "multiply", "/": "divide"},
    **{"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    **{"==": "equal", "!=": "not_equal"},
}
assert operators  # the import fills the table
