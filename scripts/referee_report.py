"""What `make referee` says: each measure beside what was found and the bar that it shall reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_report import columns

ABSENT = "skipped: not there"


@dataclass(frozen=True)
class Size:
    """How much to compare.

    Attributes
    ----------
    golden : Path
        The folder of Relay's results: ``qnn`` and ``rewrite``.
    inputs : int or None
        At most so many inputs, or random graphs; None for all.
    """

    golden: Path
    inputs: int | None = None

    def of(self, full: int) -> int:
        """Give how many of `full` there shall be."""
        return full if self.inputs is None else min(full, self.inputs)


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    Attributes
    ----------
    name : str
        What was measured.
    found, bar : str
        What was found, and what is enough.
    met : bool or None
        Whether it is; None where nothing could be compared, or there is no bar.
    figures : dict
        More, for the JSON file.
    """

    name: str
    found: str
    bar: str
    met: bool | None
    figures: dict[str, Any] = field(default_factory=dict)

    def row(self, group: str) -> dict[str, Any]:
        """Give it as the JSON file has it."""
        return {"row": group} | asdict(self)


def absent(name: str, bar: str) -> Measure:
    """Say that what a measure compares with is not there."""
    return Measure(name, ABSENT, bar, None)


def most(name: str, value: float, bar: float, unit: str = "", **figures: Any) -> Measure:
    """Make a measure that shall be `bar` at most; NaN is not."""
    found, wanted = f"{value:.4g}{unit}", f"<= {bar:.4g}{unit}"
    return Measure(name, found, wanted, value <= bar, {"value": value} | figures)


def least(name: str, value: float, bar: float, unit: str = "", **figures: Any) -> Measure:
    """Make a measure that shall be `bar` at least."""
    found, wanted = f"{value:.4g}{unit}", f">= {bar:.4g}{unit}"
    return Measure(name, found, wanted, value >= bar, {"value": value} | figures)


def holds(name: str, found: str, bar: str, met: bool | None, **figures: Any) -> Measure:
    """Make a measure that is no number."""
    return Measure(name, found, bar, met, figures)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Lay measures out as a table, with a line below on what is missed.

    Parameters
    ----------
    rows : sequence of dict
        Of `Measure.row`.

    Returns
    -------
    str
    """
    words = {True: "yes", False: "no", None: ""}
    lines = [("measure", "found", "bar", "met?")]
    lines += [(row["name"], row["found"], row["bar"], words[row["met"]]) for row in rows]
    missed = sum(row["met"] is False for row in rows)
    skipped = sum(row["found"] == ABSENT for row in rows)
    said = f"{missed} of {len(rows)} measures are missed" if missed else "no measure is missed"
    return columns(lines) + f"\n\n{said}" + (f", {skipped} skipped" if skipped else "")
