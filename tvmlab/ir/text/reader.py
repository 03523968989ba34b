"""Relay text to Relax: a recursive-descent parser that emits bindings as it reads.

Values under ``%0 = `` are bound in the order of the text; tuples, constants and other names for the
same value are not, because Relax takes those as arguments. `let` always binds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ..graph import MAX_SCOPES, has_type, no_collection
from .lexer import Token
from .metadata import load_params
from .parser import Parser, Signature
from .printer import FRAGMENT

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
        return _Reader(text, values).module()


def _decoded(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    if not isinstance(text, (bytes, bytearray)):
        raise InputError(
            f"fromtext takes Relay text, not a {type(text).__name__}",
            where=f"fromtext({text!r:.60})",
            fix="pass the result of astext, or a file's read_text()",
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
    what = f"params has a {type(value).__name__} for {name!r}"
    raise InputError(what, fix="give a NumPy array or a tensor")


class _Reader(Parser):
    """Reads one text."""

    def __init__(self, text: str, params: Mapping[str, relax.Expr]) -> None:
        super().__init__(text, params)
        self.signatures: dict[str, Signature] = {}
        self.variables: dict[str, ir.GlobalVar] = {}
        self.done: dict[str, relax.Function] = {}
        self.waiting: list[str] = []

    def module(self) -> tvm.IRModule:
        """Read all of the text."""
        token = self.token
        if self.accept("VERSION"):
            version = token.value[1:] if token.value[0] == "v" else token.value.split('"')[1]
            if version not in VERSIONS:
                what = f"Version {version} of Relay's text form is unknown"
                raise self.error(token, what, f"print it as version {' or '.join(VERSIONS)}")
        if self.next_is("def"):
            return self.definitions()
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
        main = self.signatures.get("main")
        names = [token.value[1:] for token, _ in main.parameters] if main else []
        for name in self.params:
            if name not in names:
                what = f"params has {name!r}, which is no parameter of @main"
                raise InputError(what, fix=f"its parameters are {', '.join(names) or 'none'}")
        for name, signature in self.signatures.items():
            if name not in self.done:
                self.define(name, signature.token)
        return tvm.IRModule({self.variables[name]: self.done[name] for name in self.signatures})

    def define(self, name: str, token: Token) -> None:
        """Read the body of a function of the module."""
        if name in self.waiting:
            what = f"@{name} calls itself, and its types are not declared"
            raise self.error(token, what, "declare the types of all parameters and of the result")
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

    def bare(self) -> relax.Function:
        """Read a body with no function around it, as notes and messages quote it.

        Its free variables become parameters, and so do the constants of the metadata section if
        there is none. Their type is the one that ``free_var`` declares, or the one that a comment
        states, or unknown.
        """
        start = self.at
        self.outermost = self.scope(None, self.token)
        if self.accept("fn"):
            function = self.function(self.signature(self.tokens[start]), None)
            if self.at_end():
                return function.with_attr("global_symbol", "main")
            self.at, self.free, self.outermost = start, {}, self.scope(None, self.token)
        kinds = {token.kind for token in self.tokens}
        sequence = self.sequence(self.outermost, [], "{" not in kinds, bare=True)
        attrs: dict[str, Any] = {"global_symbol": "main"}
        if self.fragment:
            attrs[FRAGMENT] = 2 if "free_var" in kinds else 1
        made = ir.make_node("ir.DictAttrs", **attrs)
        return relax.Function(list(self.free.values()), sequence, attrs=made)
