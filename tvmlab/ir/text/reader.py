"""Relay text to Relax: a recursive-descent parser that emits bindings as it reads.

Each Relay call becomes one Relax call (see `tvmlab.ir.table`). What stands under ``%0 = `` is
bound in the order of the text; tuples, constants and other names for the same value stay what they
are, since Relax takes those as arguments. `let` always binds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ..collector import no_collection
from ..graph import MAX_SCOPES, has_type
from ..module import specialize
from .cursor import compatible, type_text
from .expressions import COMPUTED, Expressions, Scope, Signature
from .lexer import Token
from .printer import FRAGMENT
from .tensors import load_params

VERSIONS = ("0.0.4", "0.0.5")
"""The versions of Relay's text form that can be read."""


def fromtext(
    text: str | bytes, params: Mapping[str, Any] | str | os.PathLike[str] | None = None
) -> tvm.IRModule:
    """Read Relay text into Relax.

    Parameters
    ----------
    text : str or bytes
        In UTF-8 where it is bytes. A module, ``def @main(...) { ... }``, or a bare body or
        expression, whose free variables become parameters of ``main``. Versions 0.0.4 and 0.0.5
        are known; none means the latter.
    params : dict of str to array, or path, optional
        Values for parameters of ``main``, which become constants; or the path of a file that
        `tvm.runtime.save_param_dict` wrote.

    Returns
    -------
    tvm.IRModule
        A Relax module.

    Raises
    ------
    RelayError
        The text cannot be read: it is malformed, uses a name that is not defined, or has something
        without a form in Relax. The error has the line and column.
    InputError
        The argument is not text.

    Notes
    -----
    Relay printed scalar constants with six digits, so the scales of a quantized network are
    rounded. Its text alone can therefore compute other integers than the model that was printed.
    """
    text = _decoded(text)
    with no_collection():
        if isinstance(params, (str, os.PathLike)):
            params = load_params(params)
        values = {name: _constant(name, value) for name, value in (params or {}).items()}
        return _Parser(text, values).module()


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    if not isinstance(text, (bytes, bytearray)):
        raise InputError(
            f"fromtext takes Relay text, not a {type(text).__name__}",
            where=f"fromtext({text!r:.60})",
            fix="give what astext printed, or a file's read_text()",
        )
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"the text is not UTF-8: {error.reason} at byte {error.start}",
            where="fromtext(bytes)",
            fix="is it a library or a parameter file? Relay text begins with #[version = ...]",
        ) from error


def _constant(name: str, value: Any) -> ir.GenericConst:
    if isinstance(value, ir.GenericConst):
        return value
    if isinstance(value, (np.ndarray, np.generic, tvm.runtime.Tensor)):
        return relax.const(value, str(value.dtype))  # without it TVM makes 32 bits of 64
    if isinstance(value, (int, float)):
        return relax.const(value)
    raise InputError(
        f"params has a {type(value).__name__} for {name!r}", fix="give a NumPy array or a tensor"
    )


class _Parser(Expressions):
    """Reads one text."""

    def __init__(self, text: str, params: Mapping[str, relax.Expr] | None = None) -> None:
        super().__init__(text)
        self.params = params or {}
        # By the index of an opening brace: that of the closing one, and whether braces are within.
        self.closing: dict[int, int] = {}
        self.nesting: set[int] = set()
        self._match_braces()
        # Functions of the module.
        self.signatures: dict[str, Signature] = {}
        self.variables: dict[str, ir.GlobalVar] = {}
        self.done: dict[str, relax.Function] = {}
        self.waiting: list[str] = []

    def _match_braces(self) -> None:
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "{":
                if opened:
                    self.nesting.add(opened[-1])
                opened.append(index)
            elif token.kind == "}" and opened:
                self.closing[opened.pop()] = index

    def module(self) -> tvm.IRModule:
        """Read all of the text."""
        if self.next_is("VERSION"):
            token = self.take("VERSION")
            said = token.value[1:] if token.value[0] == "v" else token.value.split('"')[1]
            if said not in VERSIONS:
                raise self.error(
                    token,
                    f"Version {said} of Relay's text form is unknown",
                    f"print the module with a TVM that writes {' or '.join(VERSIONS)}",
                )
        if self.next_is("def"):
            return specialize(self.definitions())
        if self.params:
            raise InputError("params are for a module's @main", fix="write def @main(...) { ... }")
        return tvm.IRModule({"main": self.bare()})

    def definitions(self) -> tvm.IRModule:
        """Read the signatures of all functions, then the bodies.

        A body is read when a call first needs its type, unless its types are declared.
        """
        while not self.at_end():
            self.take("def")
            token = self.take("GLOBAL")
            name = token.value[1:]
            if name in self.signatures:
                raise self.error(token, f"{token.value} is defined twice", "rename one")
            signature = self.signatures[name] = self.signature(token)
            self.variables[name] = ir.GlobalVar(name)
            types = [type_ for _, type_ in signature.parameters]
            result = signature.result[1] if signature.result else None
            if result is not None and all(types) and not (name == "main" and self.params):
                relax.expr._update_type(self.variables[name], relax.FuncType(types, result))
            if self.at not in self.closing:
                self.take("{")
                self.at = len(self.tokens) - 1
                raise self.unexpected("}")
            self.at = self.closing[self.at] + 1
        names = []
        if "main" in self.signatures:
            names = [token.value[1:] for token, _ in self.signatures["main"].parameters]
        for name in self.params:
            if name not in names:
                raise InputError(
                    f"params has {name!r}, which is no parameter of @main",
                    fix=f"its parameters are {', '.join(names) or 'none'}",
                )
        for name, signature in self.signatures.items():
            if name not in self.done:
                self.define(name, signature.token)
        return tvm.IRModule({self.variables[name]: self.done[name] for name in self.signatures})

    def define(self, name: str, token: Token) -> None:
        """Read the body of a function of the module."""
        if name in self.waiting:
            raise self.error(
                token,
                f"@{name} calls itself, and its types are not declared",
                "declare the type of each parameter, and of the result after ->",
            )
        if len(self.waiting) >= MAX_SCOPES:
            what = f"More than {MAX_SCOPES} functions without types call one another"
            raise self.error(token, what, "declare their types")
        self.waiting.append(name)
        before, binding = self.at, self.binding
        self.at, self.binding = self.signatures[name].at, []
        function = self.function(self.signatures[name], None, name == "main")
        self.at, self.binding = before, binding
        if name == "main" and "global_symbol" not in (function.attrs or {}):
            function = function.with_attr("global_symbol", "main")
        self.done[name] = function
        if not has_type(self.variables[name]):
            relax.expr._update_type(self.variables[name], function.ty)
        self.waiting.pop()

    def global_variable(self, token: Token) -> ir.GlobalVar:
        """Return the typed global variable of ``@name``."""
        name = token.value[1:]
        if name not in self.signatures:
            raise self.unknown(token, "function", [f"@{known}" for known in self.signatures])
        if not has_type(self.variables[name]):
            self.define(name, token)
        return self.variables[name]

    def at_end(self) -> bool:
        """Return whether all but the metadata section has been read."""
        return self.token.kind in ("END", "METADATA")

    def bare(self) -> relax.Function:
        """Read a body with no function around it, as notes and messages quote it.

        Its free variables become parameters, and so do the constants of the metadata section if
        there is none. Their type is the one that ``free_var`` declares, or the one that a comment
        states, or unknown.
        """
        start = self.at
        self.free, self.outermost = {}, self.scope(None, self.token)
        if self.accept("fn"):
            function = self.function(self.signature(self.tokens[start]), None)
            if self.at_end():
                return function.with_attr("global_symbol", "main")
            self.at, self.free, self.outermost = start, {}, self.scope(None, self.token)
        plain = "{" not in (token.kind for token in self.tokens)
        sequence = self.sequence(self.outermost, [], plain, bare=True)
        attrs: dict[str, Any] = {"global_symbol": "main"}
        if self.fragment:
            declares = any(token.kind == "free_var" for token in self.tokens)
            attrs[FRAGMENT] = 2 if declares else 1
        return relax.Function(
            list(self.free.values()), sequence, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs)
        )

    def signature(self, token: Token) -> Signature:
        """Read a function from its parameters up to its body; `token` is where errors point."""
        if self.token.kind in ("[", "<"):
            raise self.error(
                self.token,
                "Type parameters have no counterpart in Relax",
                "write the function once for each type",
            )
        self.take("(")
        parameters: dict[str, tuple[Token, ir.Type | None]] = {}
        attributes: dict[str, Any] = {}
        for _ in self.items(")"):
            if self.next_is("NAME", "="):
                self.attribute(attributes)
                continue
            if self.next_is("NAME", ":"):
                name = self.token.value
                raise self.error(
                    self.token,
                    f"A parameter's name begins with %: {name} has to be %{name}",
                    f"parameters are written %{name}: Tensor[(1), float32]",
                )
            parameter = self.take("LOCAL")
            if parameter.value in parameters:
                what = f"{parameter.value} is a parameter twice"
                raise self.error(parameter, what, "rename one of them")
            if self.accept("{"):  # where it lies
                for _ in self.items("}"):
                    self.attribute({})
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
            type_ = declared or relax.TensorType(dtype=None)
            given = self.params.get(token.value[1:]) if is_main else None
            if given is not None and not compatible(type_, given.ty):
                raise self.error(
                    token,
                    f"params has {type_text(given.ty)} for {token.value}, which is "
                    f"{type_text(type_)}",
                    "give it the shape and dtype that are declared",
                )
            if given is None:
                variables.append(relax.Var(token.value[1:], type_))
            scope.names[token.value[1:]] = variables[-1] if given is None else given
        sequence = self.block(scope, variables)
        if signature.result is not None:
            token, wanted = signature.result
            if wanted is not None and not compatible(wanted, sequence.ty):
                raise self.error(
                    token,
                    f"The result is declared {type_text(wanted)} and is {type_text(sequence.ty)}",
                    "declare what the body gives",
                )
        found = dict(signature.attributes)
        if "Compiler" in found:  # the name that Relax's code generation reads
            found.setdefault("Codegen", found["Compiler"])
        attrs = tvm.ir.make_node("ir.DictAttrs", **found) if found else None
        parts = [*map(self.size, variables), self.size(sequence.body)]
        made = relax.Function(variables, sequence, attrs=attrs)
        return self.checked(signature.token, made, parts)

    def scope(self, outer: Scope | None, token: Token) -> Scope:
        """Open a scope."""
        scope = Scope(outer)
        if scope.depth > MAX_SCOPES:
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
        """Read a body to one block of bindings, of dataflow where it is plain, and a result."""
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
            # A builder that goes with an open block complains on stderr.
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
        start, empty = self.token, True
        self.fragment = False
        while self.token.kind not in ("}", "END", "METADATA"):
            token = self.token
            name = token.value[1:]
            if self.accept("let"):
                token = self.take("LOCAL")
                name = token.value[1:]
                value = self.let_value(token, scope)
                # `let %x = value; %x` is the output itself.
                if self.tokens[self.at].value == token.value and self.ends(self.at + 1):
                    self.at += 1
                    return self.output(value, scope, plain, token)
                scope.names[name] = self.emit(value, scope, token, name)
                empty = False
                continue
            if self.accept("free_var"):
                if not bare:
                    raise self.error(token, "free_var stands at the start of a bare body only")
                token = self.take("LOCAL")
                self.parameter(token.value[1:], self.declared_type(":"))
                self.take(";")
                continue
            if self.next_is("GRAPH", "="):
                if name in scope.names:
                    raise self.error(token, f"%{name} is bound twice", "number each binding once")
                self.at += 2
                value = self.expression(scope)
                self.take(";")
                self.fragment = bare and self.at_end()
                if not self.fragment:
                    bound = isinstance(value, COMPUTED)
                    scope.names[name] = self.emit(value, scope, token) if bound else value
                    empty = empty and not bound
                    continue
            else:
                value = self.expression(scope)
                if self.accept(";"):
                    if isinstance(value, COMPUTED):
                        self.emit(value, scope, token)
                        empty = False
                    continue
            if empty and isinstance(value, (relax.Var, ir.GenericConst)):
                return value
            if not plain and isinstance(value, relax.Var):
                return value
            return self.output(value, scope, plain, token)
        if self.token.kind == "END" and not bare:
            raise self.unexpected("}")
        before = self.tokens[self.at - 1]
        start = before if before.kind == "{" else start
        raise self.error(start, "A body has no result", "end it with an expression")

    def ends(self, at: int) -> bool:
        """Return whether a body ends at a token."""
        return self.tokens[at].kind in ("}", "END", "METADATA")

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
            raise self.error(
                token,
                f"{token.value} is declared {type_text(wanted)} and is {type_text(value.ty)}",
                "declare what the value is",
            )
        return value
