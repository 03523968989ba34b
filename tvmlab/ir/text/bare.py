"""Bare bodies: Relay text with no function around it, as notes and messages quote it.

What nothing binds becomes a parameter of ``main``: free variables, and where no metadata section
stands, the constants of one. The type is the one that is declared (``free_var``), or the one that a
comment tells, or unknown.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...errors import TvmlabError
from ..graph import known, typed
from .expressions import Scope, agrees
from .lexer import Token, type_comment
from .lowering import Lowering
from .printer import FRAGMENT
from .syntax import Node, parse_type
from .values import read_type


class BareLowering(Lowering):
    """Turns a bare body into a function."""

    variables: dict[str, relax.Var]
    outermost: Scope
    places: dict[str, int]

    def main(self, body: Node) -> relax.Function:
        """Give the function that a bare body is."""
        statements, result = body.items
        self.variables, self.places = {}, {}
        self.outermost = self.inner(None, body.token)
        if not statements and result is not None and result.kind == "function":
            function = self.function(result.token, result.items)
            return function.with_attr("global_symbol", "main")
        scope = self.outermost
        declared = [statement for statement in statements if statement.kind == "free"]
        for statement in declared:
            self.variable(statement.token, read_type(self.text, statement.items[0]))
        statements[:] = [statement for statement in statements if statement.kind != "free"]
        sequence = self.sequence(body, scope, [], final=False)
        attrs: dict[str, Any] = {"global_symbol": "main"}
        if result is None:
            attrs[FRAGMENT] = 2 if declared else 1
        parameters = sorted(self.variables.values(), key=lambda var: self.places[var.name])
        return relax.Function(parameters, sequence, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))

    def variable(self, token: Token, type_: tvm.ir.Type | None) -> relax.Var:
        """Make a parameter of what is free; they stand in the order of the text."""
        name = token.value.removeprefix("%")
        self.places[name] = token.start
        self.variables[name] = relax.Var(name, type_ or relax.TensorType(dtype=None))
        self.outermost.names[name] = self.variables[name]
        return self.variables[name]

    def _local(self, node: Node, scope: Scope) -> relax.Expr:
        if self.is_free(node, scope) and node.token.value[1:] not in self.binding:
            return self.variable(node.token, None)
        return super()._local(node, scope)

    def is_free(self, node: Node, scope: Scope) -> bool:
        """Say whether nothing binds a variable, nor what it could be a field of."""
        name = node.token.value[1:]
        while scope.find(name) is None:
            name, dot, field = name.rpartition(".")
            if not dot or not field.isdigit():
                return True
        return False

    def _meta(self, node: Node, scope: Scope) -> relax.Expr:
        if self.constants.mark is not None or "relay.Constant" not in node.token.value:
            return super()._meta(node, scope)
        if node.token.value not in self.variables:
            self.variable(node.token, self.told(node.token))
        return self.variables[node.token.value]

    def _call(self, node: Node, scope: Scope) -> relax.Expr:
        callee, arguments, _ = node.items
        if callee.kind == "operator" and arguments and node.end is not None:
            free = [a for a in arguments if a.kind == "local" and self.is_free(a, scope)]
            simple = all(argument.kind in _SIMPLE for argument in arguments)
            if simple and arguments[0] in free:
                self.guess(node, [argument.token for argument in free], scope)
        return super()._call(node, scope)

    def guess(self, node: Node, free: list[Token], scope: Scope) -> None:
        """Find the type of the free operands that gives the result's type in the comment."""
        result = self.told(node.end) if node.end is not None else None
        if not isinstance(result, relax.TensorType):
            return
        callee, arguments, attributes = node.items
        names = {token.value for token in free}
        for dtype in (str(result.dtype), "float32"):
            type_ = relax.TensorType(result.shape, dtype)
            try:
                operands = [
                    relax.Var(argument.token.value[1:], type_)
                    if argument.token.value in names
                    else self.leaf(argument, scope)
                    for argument in arguments
                ]
                value = typed(
                    self.operation(
                        callee.token, callee.token.value, operands, self.attributes(attributes)
                    )
                )
            except TvmlabError:
                continue
            if known(value) and agrees(result, value.ty):
                for token in free:
                    if token.value[1:] not in self.variables:
                        self.variable(token, type_)
                return

    def told(self, token: Token) -> tvm.ir.Type | None:
        """Give the type in the comment behind a token."""
        comment = type_comment(self.text, token)
        return read_type(comment, parse_type(comment)) if comment else None


_SIMPLE = {"literal", "meta", "temporary", "local"}
