"""Relay's descriptions of executors and runtimes, of which today's TVM has one of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import RelayError
from ..ir import gone

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
    for option, value in options.items():
        if option in _IDLE.get(what, ()) or (option, value) == ("interface-api", "packed"):
            if value:
                warnings.warn(
                    f"the option {option!r} of the {what} does nothing today", stacklevel=4
                )
        elif value:
            raise RelayError(
                f"the {what} {name!r} takes no option {option!r} today",
                where=str(dict(options)),
                fix="leave it out",
            )


# Where constants lie, and how memory is aligned: the results are the same.
_IDLE = {"executor": ("constant-byte-alignment", "link-params", "workspace-byte-alignment")}


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, globals())
