"""Relay's descriptions of executors and runtimes, of which today's TVM has one of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import RelayError
from . import gone

__all__ = ["Executor", "Runtime"]


@dataclass(frozen=True)
class Executor:
    """What runs a model: ``"graph"`` or ``"aot"``; both are Relax's virtual machine here."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("executor", self.name, ("graph", "aot"), self.options)


@dataclass(frozen=True)
class Runtime:
    """What a compiled model links with: ``"cpp"``; the one for microcontrollers is gone."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("runtime", self.name, ("cpp",), self.options)


def _check(what: str, name: str, known: tuple[str, ...], options: Mapping[str, Any]) -> None:
    if name not in known:
        raise RelayError(
            f"today's TVM has no {what} {name!r}",
            where=f"relay.backend.{what.capitalize()}",
            fix=f"use {' or '.join(map(repr, known))}",
        )
    if any(options.values()):
        raise RelayError(
            f"the {what} {name!r} takes no options today",
            where=str(dict(options)),
            fix="leave them out",
        )


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, globals())
