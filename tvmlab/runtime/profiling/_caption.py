"""What is shown where a single run is drawn: it was watched, and a table's whole was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._units import TIMES, fitting

if TYPE_CHECKING:
    from .result import Profile

__all__ = ["caption"]


def caption(profile: Profile) -> str:
    """Say in a line which run a picture shows, and how much longer it took for being watched."""
    factor, unit = fitting(profile.seconds, TIMES)
    shown = profile.run[0].nanoseconds / 1e9
    return (
        f"one watched run, {shown / factor:,.3f} {unit}; "
        f"the median without watching is {profile.seconds / factor:,.3f} {unit}"
    )
