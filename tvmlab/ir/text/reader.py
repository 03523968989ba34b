"""Relay text to Relax.

Each Relay call becomes one Relax call (see `tvmlab.ir.table`). What stands under ``%0 = `` is
bound in the order of the text; tuples, constants and other names for the same value stay what they
are, since Relax takes those as arguments. `let` always binds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import InputError
from ..collector import no_collection
from ..graph import MAX_SCOPES, known
from ..module import specialize
from .bare import BareLowering
from .constants import Constants
from .lexer import Token, error
from .lowering import Lowering
from .params import load_params
from .syntax import Node, parse
from .values import read_type

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
        Values for parameters of ``main``, which become constants; a path names what
        `tvm.runtime.save_param_dict` wrote.

    Returns
    -------
    tvm.IRModule
        A Relax module.

    Raises
    ------
    RelayError
        Where the text cannot be read, with line and column: it is malformed, names what is not
        there, or says what has no form in Relax.
    InputError
        It is no text at all.

    Notes
    -----
    Relay printed scalar constants with six digits, so the scales of a quantized network are
    rounded. Its text alone can therefore compute other integers than the model that was printed.
    """
    text = _decoded(text)
    with no_collection():
        return _read(text, params)


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


def _read(text: str, params: Mapping[str, Any] | str | os.PathLike[str] | None) -> tvm.IRModule:
    version, root, mark = parse(text)
    _check_version(text, version)
    if isinstance(params, (str, os.PathLike)):
        params = load_params(Path(params))
    constants = Constants(text, mark)
    values = {name: _constant(name, value) for name, value in (params or {}).items()}
    if root.kind == "module":
        return specialize(_Module(text, constants, root, values).lower())
    if values:
        raise InputError("params are for a module's @main", fix="write def @main(...) { ... }")
    return tvm.IRModule({"main": BareLowering(text, constants).main(root)})


def _check_version(text: str, token: Token | None) -> None:
    if token is None:
        return
    said = token.value[1:] if token.value.startswith("v") else token.value.split('"')[1]
    if said not in VERSIONS:
        raise error(
            text,
            token.start,
            f"Version {said} of Relay's text form is unknown",
            fix=f"print the module with a TVM that writes {' or '.join(VERSIONS)}",
        )


class _Module(Lowering):
    """Turns the definitions of a text into a module.

    A function is lowered when a call first needs its type, unless its types are declared.
    """

    def __init__(
        self, text: str, constants: Constants, root: Node, params: dict[str, ir.GenericConst]
    ) -> None:
        super().__init__(text, constants)
        self.params = params
        self.nodes: dict[str, Node] = {}
        for node in root.items:
            if node.token.value[1:] in self.nodes:
                raise self.error(node.token, f"{node.token.value} is defined twice", "rename one")
            self.nodes[node.token.value[1:]] = node
        self.variables = {name: self.declare(name) for name in self.nodes}
        self.done: dict[str, relax.Function] = {}
        self.waiting: list[str] = []

    def lower(self) -> tvm.IRModule:
        """Give the module."""
        items = self.nodes["main"].items[0] if "main" in self.nodes else []
        names = [item.token.value[1:] for item in items]
        for name in self.params:
            if name not in names:
                raise InputError(
                    f"params has {name!r}, which is no parameter of @main",
                    fix=f"its parameters are {', '.join(names) or 'none'}",
                )
        for name, node in self.nodes.items():
            if name not in self.done:
                self.define(name, node.token)
        return tvm.IRModule({self.variables[name]: self.done[name] for name in self.nodes})

    def declare(self, name: str) -> ir.GlobalVar:
        """Give a function's global variable, with its type where that is declared in full."""
        variable = ir.GlobalVar(name)
        parameters, _, declared, _ = self.nodes[name].items
        types = [read_type(self.text, item.items[0]) for item in parameters]
        result = read_type(self.text, declared)
        if result is not None and all(types) and not (name == "main" and self.params):
            relax.expr._update_type(variable, relax.FuncType(types, result))
        return variable

    def define(self, name: str, token: Token) -> None:
        """Lower a function."""
        if name in self.waiting:
            raise self.error(
                token,
                f"@{name} calls itself, and its types are not declared",
                "declare the type of each parameter, and of the result after ->",
            )
        if len(self.waiting) >= MAX_SCOPES:
            raise self.error(
                token, f"More than {MAX_SCOPES} functions without types call one another", "declare"
            )
        self.waiting.append(name)
        node = self.nodes[name]
        values = dict(self.params) if name == "main" else {}
        function = self.function(node.token, node.items, values=values)
        if name == "main" and "global_symbol" not in (function.attrs or {}):
            function = function.with_attr("global_symbol", "main")
        self.done[name] = function
        if not known(self.variables[name]):
            relax.expr._update_type(self.variables[name], function.ty)
        self.waiting.pop()

    def function_of(self, token: Token) -> ir.GlobalVar:
        """Give the typed global variable of ``@name``."""
        name = token.value[1:]
        if name not in self.nodes:
            raise self.unknown(token, "function", [f"@{known}" for known in self.nodes])
        if not known(self.variables[name]):
            self.define(name, token)
        return self.variables[name]


def _constant(name: str, value: Any) -> ir.GenericConst:
    if isinstance(value, ir.GenericConst):
        return value
    if isinstance(value, (np.ndarray, np.generic, tvm.runtime.Tensor)):
        return relax.const(value, str(value.dtype))  # for else TVM makes 32 bits of 64
    if isinstance(value, (int, float)):
        return relax.const(value)
    raise InputError(
        f"params has a {type(value).__name__} for {name!r}", fix="give a NumPy array or a tensor"
    )
