"""Pictures of a profile, in the workbook's style (`tvmlab.plot`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ... import plot
from ...errors import InputError
from ._units import TIMES, fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Profile

__all__ = ["bars", "roofline"]

_LETTERS = 40


def bars(profile: Profile, most: int) -> Figure:
    """Draw the longest rows as bars; see `Profile.bars`."""
    if most < 1:
        raise InputError(
            f"{most} bars cannot be drawn", where="Profile.bars", fix="give at least 1"
        )
    shown = profile.rows[:most]
    factor, unit = fitting(profile.seconds, TIMES)
    values: dict[str, float] = {}
    for place, row in enumerate(shown, 1):
        name = row.name
        if len(name) > _LETTERS or name in values:
            # Its place keeps it apart from others that begin alike.
            name = f"{place}. {name[: _LETTERS - 7]}..."
        values[name] = row.seconds / factor
    rest = profile.rows[most:]
    if rest:
        values[f"{len(rest)} more"] = sum(row.seconds for row in rest) / factor
    return plot.bars(values, unit=unit, title="Where the time goes")


def roofline(profile: Profile) -> Figure:
    """Draw the rows under the machine's limits; see `Profile.roofline`."""
    done: Counter[str] = Counter()
    for row in profile.rows:
        if row.of_peak is not None:
            done[row.dtype] += row.operations or 0
    dtype = max(done, key=done.__getitem__, default="")
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in profile.rows:
        if row.dtype == dtype and row.of_peak is not None and row.intensity and row.gflops:
            groups.setdefault(row.kind, []).append((row.intensity, row.gflops))
    if not groups:
        raise InputError(
            "no function computes in a dtype whose peak is measured",
            where="Profile.roofline",
            fix="profile a network whose sums are float32, float64 or products of int8",
        )
    return plot.roofline(
        groups,
        peak=profile.peaks[dtype] / 1e9,
        bandwidth=profile.bandwidth / 1e9,
        title=f"The functions that compute in {dtype}",
    )
