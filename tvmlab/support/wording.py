"""Format messages: tables, counted nouns, and one line of another library's error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SCHEDULES = "Error message: "  # the prefix of the message in TVM's schedule errors


def several(number: int, noun: str) -> str:
    """Format a count with its noun: "1 trial", "2 trials"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """Format rows as a table, whose columns `left` are aligned to the left, others to the right."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = ["<" if place in left else ">" for place in range(len(head))]
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(line, aligned, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def telling(error: BaseException) -> str:
    """Extract the most informative line of another library's error.

    It is the first line of a TVM error, the last line of a traceback, or the text after "Error
    message:" of a schedule. It includes the operator that TVM reports as offending.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        return type(error).__name__
    for line in lines:
        if line.startswith(_SCHEDULES):
            return line.removeprefix(_SCHEDULES).strip()
    if lines[0].startswith("Traceback"):
        return lines[-1]
    if "Offending call:" in lines[:-1]:
        operator = lines[lines.index("Offending call:") + 1].partition("(")[0]
        return f"{operator}: {lines[0]}"
    return lines[0]
