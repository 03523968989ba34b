"""Relay's descriptions of executors and runtimes, of which today's TVM has one of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import RelayError
from ..ir import gone

__path__: list[str] = []  # see gone.ImportFinder
__all__ = ["Executor", "Runtime"]


@dataclass(frozen=True)
class _Described:
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    names: ClassVar[tuple[str, ...]]
    idle: ClassVar[tuple[str, ...]] = ()
    """Options about where constants lie and how memory is aligned: the results are the same."""

    def __post_init__(self) -> None:
        what = type(self).__name__.lower()
        if self.name not in self.names:
            raise RelayError(
                f"today's TVM has no {what} {self.name!r}",
                where=f"relay.backend.{type(self).__name__}",
                fix=f"use {' or '.join(map(repr, self.names))}",
            )
        for option, value in self.options.items():
            idle = option in self.idle or (option, value) == ("interface-api", "packed")
            if value and not idle:
                raise RelayError(
                    f"the {what} {self.name!r} takes no option {option!r} today",
                    where=str(dict(self.options)),
                    fix="leave it out",
                )
            if value:
                warnings.warn(
                    f"the option {option!r} of the {what} does nothing today", stacklevel=4
                )


class Executor(_Described):
    """What runs a model: ``"graph"`` or ``"aot"``; both are Relax's virtual machine here."""

    names = ("graph", "aot")
    idle = ("constant-byte-alignment", "link-params", "workspace-byte-alignment")


class Runtime(_Described):
    """What a compiled model links with: ``"cpp"``; the one for microcontrollers is gone."""

    names = ("cpp",)


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, __all__)
