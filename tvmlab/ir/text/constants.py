"""The constants that Relay text refers to, made once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tvm import ir, relax

from . import metadata
from .lexer import Token, error
from .values import DROPPED

_PLACES = ("VirtualDevice", "Executor", "Runtime", "Target", "WorkspaceMemoryPools")


class Constants:
    """The metadata section of a text, read when something first asks for it.

    Parameters
    ----------
    text : str
        All of the text.
    mark : Token or None
        ``#[metadata]``, behind which the section stands.
    """

    def __init__(self, text: str, mark: Token | None) -> None:
        self.text, self.mark = text, mark
        self._entries: dict[str, list[Any]] | None = None
        self._literals: dict[str, ir.GenericConst] = {}

    def literal(self, token: Token, make: Callable[[], ir.GenericConst]) -> ir.GenericConst:
        """Give a literal's constant, the same object for the same text."""
        if token.value not in self._literals:
            self._literals[token.value] = make()
        return self._literals[token.value]

    def tensor(self, token: Token) -> ir.GenericConst:
        """Give the constant that ``meta[relay.Constant][0]`` refers to."""
        entries, index = self._find(token, "relay.Constant")
        if not isinstance(entries[index], ir.GenericConst):
            # With the dtype, for else TVM makes 32 bits of 64.
            entries[index] = relax.const(entries[index], str(entries[index].dtype))
        return entries[index]

    def number(self, token: Token) -> Any:
        """Give what an attribute's value refers to.

        Returns
        -------
        int, float or object
            The integer of ``meta[runtime.BoxInt][0]``, the number of a constant without axes, or
            `values.DROPPED` for the objects that Relax has no place for.
        """
        key = re.findall(r"[\w.]+", token.value)[1]
        if key in _PLACES:
            return DROPPED
        if key != "relay.Constant":
            entries, index = self._find(token, "runtime.BoxInt")
            return int(entries[index])
        value = self.tensor(token).value.numpy()
        if value.ndim:
            raise error(
                self.text,
                token.start,
                f"An attribute cannot be a tensor of shape {value.shape}",
                fix="only a constant without axes can stand here",
            )
        return value.item()

    def _find(self, token: Token, kind: str) -> tuple[list[Any], int]:
        key, digits = re.findall(r"[\w.]+", token.value)[1:]
        if key != kind:
            raise error(
                self.text, token.start, f"A {key} cannot stand here", fix=f"only a {kind} can"
            )
        if self.mark is None:
            raise error(
                self.text,
                token.start,
                f"{token.value} refers to metadata, and the text has none",
                fix="print the module with show_meta_data=True",
            )
        if self._entries is None:
            start = self.mark.start + len(self.mark.value)
            lines = self.text.count("\n", 0, start)
            self._entries = metadata.decode(self.text[start:], lines)
        entries = self._entries.get(key, [])
        if len(digits) > 9 or int(digits) >= len(entries):
            raise error(
                self.text,
                token.start,
                f"{key} has no entry {digits[:20]} in the metadata, which has {len(entries)}",
                fix="is the text whole?",
            )
        return entries, int(digits)
