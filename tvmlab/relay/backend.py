"""Relay's descriptions of executors and runtimes, of which today's TVM has one of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RelayError
from ..ir import gone

__path__: list[str] = []  # see gone.ImportFinder
__all__ = ["Executor", "Runtime"]


class Executor:
    """What runs a model: ``"graph"`` or ``"aot"``; both are Relax's virtual machine here.

    Parameters
    ----------
    name : str
        Its name.
    options : mapping, optional
        Relay's options, as far as they do not change the results.

    Raises
    ------
    RelayError
        Today's TVM has no such executor, or an option is not carried.
    """

    names: tuple[str, ...] = ("graph", "aot")
    #: About where constants lie and how memory is aligned: the results are the same without them.
    idle: tuple[str, ...] = (
        "constant-byte-alignment",
        "link-params",
        "workspace-byte-alignment",
    )

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name, self.options = name, dict(options or {})
        what, where = type(self).__name__.lower(), f"relay.backend.{type(self).__name__}"
        if name not in self.names:
            fix = f"use {' or '.join(map(repr, self.names))}"
            raise RelayError(f"today's TVM has no {what} {name!r}", where=where, fix=fix)
        for option, value in self.options.items():
            if value and option not in self.idle and (option, value) != ("interface-api", "packed"):
                problem = f"the {what} {name!r} takes no option {option!r} today"
                raise RelayError(problem, where=str(self.options), fix="leave it out")


class Runtime(Executor):
    """What a compiled model links with: ``"cpp"``; the one for microcontrollers is gone."""

    names = ("cpp",)
    idle = ()


def __getattr__(name: str) -> Any:
    raise gone.missing("backend", name, __all__)
