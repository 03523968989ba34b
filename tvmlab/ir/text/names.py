"""Names that Relay's text can hold, each for one thing only."""

from __future__ import annotations

import re
from collections.abc import Iterator


class Names:
    """Gives out names, as Relay's printer does: the hint itself, then with a number behind it."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._heads: set[str] = set()
        self._numbers: dict[str, int] = {}

    def local(self, hint: str) -> str:
        """Name a variable.

        Parameters
        ----------
        hint : str
            The name that it has in Relax.

        Returns
        -------
        str
            Letters, digits, underscores, dots and slashes; what else there is becomes an
            underscore, and a name that does not start with a letter gets a ``v`` in front. Two
            variables are never named alike, nor such that one's name is the other's with a
            projection behind it: ``x`` and ``x.0``.
        """
        name = _UNWRITTEN.sub("_", hint)
        if not name[:1].isalpha():
            name = f"v{name}"
        if self._clashes(name) and _FIELDS.search(name):
            name = name.replace(".", "_")
        return self._unique(name)

    def function(self, hint: str) -> str:
        """Name a function of the module: letters, digits, underscores and dots."""
        name = _UNWRITTEN.sub("_", hint).replace("/", "_")
        return self._unique(name if _WORD.match(name) else f"v{name}")

    def _unique(self, name: str) -> str:
        unique = name
        while self._clashes(unique):
            self._numbers[name] = self._numbers.get(name, 0) + 1
            unique = f"{name}{self._numbers[name]}"
        self._given.add(unique)
        self._heads.update(_heads(unique))
        return unique

    def _clashes(self, name: str) -> bool:
        return (
            name in self._given
            or name in self._heads
            or any(head in self._given for head in _heads(name))
        )


def _heads(name: str) -> Iterator[str]:
    """Give what stands before the projections that a name seems to end in."""
    while found := _FIELDS.search(name):
        name = name[: found.start()]
        yield name


# A dot or slash stands between the parts of a name, not at its ends nor beside another.
_UNWRITTEN = re.compile(r"[^A-Za-z0-9_./]|[./](?![A-Za-z0-9_])|^[./]")
_FIELDS = re.compile(r"\.[0-9]+$")
_WORD = re.compile(r"[A-Za-z_]")
