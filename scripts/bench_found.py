"""What a section of `make bench` is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Effort:
    """How long to measure.

    Attributes
    ----------
    rounds : int
        Rounds of a race.
    budget : float
        Seconds: a race that would last longer has fewer rounds.
    """

    rounds: int = 15
    budget: float = 30.0


@dataclass
class Found:
    """What a section found.

    Attributes
    ----------
    values : dict of str to float
        The measures by the names they have in the report.
    figures : dict
        Everything, for the JSON file.
    peak : float
        The fastest that the peak loop ran, in floating-point operations a second; 0 where the
        section did not run it.
    """

    values: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    peak: float = 0.0
