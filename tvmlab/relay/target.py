"""Relay's notations for a target, an executor and a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from ..errors import RelayError
from ..ir import gone
from ..support.target import as_target
from .expr import refuse

__path__: list[str] = []  # see gone.ImportFinder


def read(target: Any, host: Any = None) -> tvm.target.Target:
    """Read a target in any of Relay's notations, with the target of its host if it needs one.

    A target is a string of the Relay era, a `tvm.target.Target` or a description as today. None is
    the enclosing target (``with tvm.target.Target(...)``), or the host. Raises `TargetError` for an
    unknown target.
    """
    if target is None:
        target = tvm.target.Target.current(allow_none=True)
    made = as_target(target)
    return made if host is None else as_target(tvm.target.Target(made, read(host)))


class Executor:
    """The executor of a model: ``"graph"`` or ``"aot"``; both are Relax's virtual machine here.

    Options about the placement of constants have no effect. Raises `RelayError` for others.
    """

    names: tuple[str, ...] = ("graph", "aot")
    idle: tuple[str, ...] = ("constant-byte-alignment", "link-params", "workspace-byte-alignment")

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name, self.options = name, dict(options or {})
        what, fix = type(self).__name__, f"use {' or '.join(map(repr, self.names))}"
        if name not in self.names:
            raise RelayError(f"today's TVM has no {what.lower()} {name!r}", fix=fix)
        refuse(what, **{key: one for key, one in self.options.items() if key not in self.idle})


class Runtime(Executor):
    """The runtime of a compiled model: ``"cpp"``; the one for microcontrollers was removed."""

    names, idle = ("cpp",), ()


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, globals())
