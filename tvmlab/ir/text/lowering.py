"""The tree of a function's body to bindings of Relax."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax

from ..graph import MAX_SCOPES, known
from .expressions import BINDING, Expressions, Scope, agrees, said
from .lexer import Token
from .syntax import Node
from .values import read_type


class Lowering(Expressions):
    """Turns functions and bodies into Relax, for one text."""

    def function_of(self, token: Token) -> ir.GlobalVar:
        """Give the typed global variable of ``@name``."""
        raise self.error(token, f"There is no function {token.value} here", "define it")

    def function(
        self,
        token: Token,
        items: tuple[list[Node], list[Node], Node | None, Node],
        outer: Scope | None = None,
        values: dict[str, relax.Expr] | None = None,
    ) -> relax.Function:
        """Lower a function.

        Parameters
        ----------
        token : Token
            Where errors about it point.
        items : tuple
            Parameters, attributes, declared result, body.
        outer : Scope, optional
            What a nested function sees.
        values : dict of str to Expr, optional
            What stands for parameters that are bound already.
        """
        parameters, attributes, declared, body = items
        scope = self.inner(outer, token)
        variables = []
        for node in parameters:
            name = node.token.value[1:]
            if name in scope.names:
                raise self.error(node.token, f"%{name} is a parameter twice", "rename one of them")
            type_ = read_type(self.text, node.items[0]) or relax.TensorType(dtype=None)
            given = (values or {}).get(name)
            if given is not None and not agrees(type_, given.ty):
                raise self.error(
                    node.token,
                    f"params has {said(given.ty)} for %{name}, which is {said(type_)}",
                    "give it the shape and dtype that are declared",
                )
            scope.names[name] = given if given is not None else relax.Var(name, type_)
            if given is None:
                variables.append(scope.names[name])
        sequence = self.sequence(body, scope, variables)
        result = read_type(self.text, declared)
        if result is not None and not agrees(result, sequence.ty):
            raise self.error(
                declared.token if declared else token,
                f"The result is declared {said(result)} and is {said(sequence.ty)}",
                "declare what the body gives",
            )
        found = self.attributes(attributes)
        if "Compiler" in found:  # the name that Relax's code generation reads
            found.setdefault("Codegen", found["Compiler"])
        attrs = tvm.ir.make_node("ir.DictAttrs", **found) if found else None
        parts = [*map(self.size, variables), self.size(sequence.body)]
        return self.nest(token, relax.Function(variables, sequence, attrs=attrs), parts)

    def inner(self, outer: Scope | None, token: Token) -> Scope:
        """Open a scope."""
        scope = Scope(outer)
        if scope.depth > MAX_SCOPES:
            raise self.error(token, f"Functions nest deeper than {MAX_SCOPES} levels here")
        return scope

    def sequence(
        self, body: Node, scope: Scope, variables: Sequence[relax.Var], *, final: bool = True
    ) -> relax.SeqExpr:
        """Lower a body to one block of bindings and a result."""
        plain = not body.scopes
        builder = scope.builder
        builder.begin_scope(list(variables))
        if plain:
            builder._begin_dataflow_block()
        else:
            builder._begin_binding_block()
        try:
            result = self.body(body, scope, plain, final)
        except BaseException:
            # A builder that goes with an open block complains on stderr.
            builder._end_block()
            builder.end_scope()
            raise
        block = builder._end_block()
        blocks = [block] if block.bindings else []
        sequence = builder.normalize(relax.SeqExpr(blocks, result))
        builder.end_scope()
        return sequence

    def body(self, body: Node, scope: Scope, plain: bool, final: bool) -> relax.Expr:
        """Emit a body's bindings and give its result, an output in a dataflow block."""
        statements, result = body.items
        if result is None and (final or not statements or statements[-1].kind != "graph"):
            raise self.error(body.token, "A body has no result", "end it with an expression")
        last = result if result is not None else statements[-1].items[0]
        # `let %x = value; %x` and a fragment's last binding are the output themselves.
        closing = statements[-1] if statements else None
        if closing is not None and result is not None:
            same = (closing.kind, result.kind) == ("let", "local")
            if not same or closing.token.value != result.token.value:
                closing = None
        empty = True
        for statement in statements:
            if statement is not closing:
                empty = not self.statement(statement, scope) and empty
        if closing is not None and closing.kind == "let":
            value = self.declared(closing, scope)
            return self.output(value, scope, plain, last.token)
        value = self.value(last, scope)
        if empty and isinstance(value, (relax.Var, ir.GenericConst)):
            return value
        if not plain and isinstance(value, relax.Var):
            return value
        return self.output(value, scope, plain, last.token)

    def output(self, value: relax.Expr, scope: Scope, plain: bool, token: Token) -> relax.Expr:
        """Bind the result of a body."""
        if not plain:
            return self.emit(value, scope, token)
        try:
            return scope.builder.emit_output(value)
        except Exception as problem:
            self.refuse(token, problem)

    def statement(self, node: Node, scope: Scope) -> bool:
        """Emit what a statement binds; say whether it bound anything."""
        name = node.token.value[1:]
        if node.kind == "let":
            scope.names[name] = self.emit(self.declared(node, scope), scope, node.token, name)
            return True
        if node.kind == "graph":
            if name in scope.names:
                raise self.error(node.token, f"%{name} is bound twice", "number each binding once")
            value = self.value(node.items[0], scope)
            bound = isinstance(value, BINDING)
            scope.names[name] = self.emit(value, scope, node.token) if bound else value
            return bound
        if node.kind == "free":
            raise self.error(node.token, "free_var stands at the start of a bare body only")
        value = self.value(node.items[0], scope)
        if isinstance(value, BINDING):
            self.emit(value, scope, node.token)
        return isinstance(value, BINDING)

    def declared(self, node: Node, scope: Scope) -> relax.Expr:
        """Give the value of a `let`, which has the type that is declared."""
        declared, value_node = node.items
        self.binding.append(node.token.value[1:])
        value = self.value(value_node, scope)
        self.binding.pop()
        wanted = read_type(self.text, declared)
        if wanted is not None and known(value) and not agrees(wanted, value.ty):
            raise self.error(
                node.token,
                f"{node.token.value} is declared {said(wanted)} and is {said(value.ty)}",
                "declare what the value is",
            )
        return value

    def _global(self, node: Node, _: Scope) -> relax.Expr:
        return self.function_of(node.token)

    def _function(self, node: Node, scope: Scope) -> relax.Expr:
        return self.function(node.token, node.items, scope)

    def _branch(self, node: Node, scope: Scope) -> relax.Expr:
        condition, *branches = node.items
        test = self.leaf(condition, scope)
        then, other = (
            self.sequence(branch, self.inner(scope, node.token), []) for branch in branches
        )
        if not agrees(relax.TensorType([], "bool"), test.ty):
            raise self.error(
                condition.token, f"A condition is bool without axes, not {said(test.ty)}"
            )
        if not agrees(then.ty, other.ty):
            raise self.error(
                node.token,
                f"One branch gives {said(then.ty)}, the other {said(other.ty)}",
                "let both give the same type",
            )
        return relax.If(test, then, other)
