"""Relay's descriptions of executors and runtimes, of which today's TVM has one of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RelayError
from ..ir import gone
from .expr import refuse

__path__: list[str] = []  # see gone.ImportFinder


class Executor:
    """What runs a model: ``"graph"`` or ``"aot"``; both are Relax's virtual machine here.

    Options about where constants lie have no effect. Raises `RelayError` for other options.
    """

    names: tuple[str, ...] = ("graph", "aot")
    idle: tuple[str, ...] = ("constant-byte-alignment", "link-params", "workspace-byte-alignment")

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name, self.options = name, dict(options or {})
        what = type(self).__name__
        if name not in self.names:
            raise RelayError(
                f"today's TVM has no {what.lower()} {name!r}",
                where=f"relay.backend.{what}",
                fix=f"use {' or '.join(map(repr, self.names))}",
            )
        refuse(what, **{key: one for key, one in self.options.items() if key not in self.idle})


class Runtime(Executor):
    """What a compiled model links with: ``"cpp"``; the one for microcontrollers is gone."""

    names, idle = ("cpp",), ()


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, globals())
