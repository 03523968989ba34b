"""What a command found: text for people, data for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Answer", "one_line", "table"]


class Answer(NamedTuple):
    """What a command prints.

    Attributes
    ----------
    text : str
        For people.
    data : mapping
        For ``--json``: of str, int, float, bool, None, lists and mappings.
    """

    text: str
    data: Mapping[str, Any]

    def json(self) -> str:
        """Write the data as strict JSON: a number that JSON has not, such as infinity, is null."""
        import json

        return json.dumps(_strict(self.data), indent=1, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def one_line(text: str) -> str:
    """Put a text in a line, whatever is in it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay rows out: the first column to the left, the others to the right.

    Parameters
    ----------
    head : sequence of str
        What the columns are.
    rows : iterable of sequence
        As many cells each.

    Returns
    -------
    str
        Lines of the same columns.
    """
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )
