"""A profile as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...support.wording import table
from ._units import SIZES, TIMES, fitting

if TYPE_CHECKING:
    from .result import Profile, Row

__all__ = ["text"]

_WIDTH = 40


def text(profile: Profile) -> str:
    """Lay a profile out: a line a row, then the whole and what the numbers are held against."""
    cycles = any(row.cycles is not None for row in profile.rows)
    time = fitting(profile.seconds, TIMES)
    size = fitting(max(row.bytes for row in profile.rows), SIZES)
    heads = ["output", "calls", time[1], "share", "GFLOP/s", "of peak", size[1], "GB/s", "of mem."]
    rows = [
        [_cut(row.name), *_cells(row, time[0], size[0]), *_cycles(row, cycles)]
        for row in profile.rows
    ]
    head = ["function", *heads, *(["cycles"] if cycles else [])]
    return "\n".join([table(head, rows), *_below(profile)])


def _cells(row: Row, time: float, size: float) -> list[str]:
    return [
        row.tensors[-1].rpartition(" ")[2] if row.tensors else "",
        f"{row.calls:,}",
        f"{row.seconds / time:,.3f}",
        f"{row.share:.1%}",
        _number(row.gflops) if row.operations else "",
        _share(row.of_peak),
        f"{row.bytes / size:,.2f}" if row.of_bandwidth is not None else "",
        _number(row.gigabytes) if row.of_bandwidth is not None else "",
        _share(row.of_bandwidth),
    ]


def _cycles(row: Row, wanted: bool) -> list[str]:
    return [("" if row.cycles is None else f"{row.cycles:,}")] if wanted else []


def _below(profile: Profile) -> list[str]:
    """Say what the table cannot."""
    peaks = [f"{value / 1e9:,.0f} GFLOP/s {dtype}" for dtype, value in profile.peaks.items()]
    limits = ", ".join([*peaks, f"{profile.bandwidth / 1e9:,.0f} GB/s"])
    factor, unit = fitting(profile.seconds, TIMES)
    lines = [
        f"whole run {profile.seconds / factor:,.3f} {unit}; rows add up to {profile.covered:.1%} "
        f"of it; watching added {profile.overhead:+.1%}",
        f"limits of this machine: {limits}",
    ]
    here = [row for row in profile.rows if row.cycles is None and row.of_bandwidth is not None]
    without = [row for row in here if row.operations and row.of_peak is None]
    if without:
        lines.append(
            f"without a share of the peak {len(without)} of {len(profile.rows)} rows: no loop "
            f"measures that of {', '.join(sorted({row.dtype for row in without}))}"
        )
    if any((row.of_bandwidth or 0) > 1 for row in here):
        lines.append(
            "above 100% of mem.: what such a row reads was still in a cache, which is faster"
        )
    unknown = [row for row in here if row.operations is None]
    if unknown:
        lines.append(
            f"operations are not known of {len(unknown)} of {len(profile.rows)} rows: their sizes "
            "show only when they run, they call other code, or the file does not say"
        )
    cycles = sum(row.cycles or 0 for row in profile.rows)
    if cycles and profile.clock_mhz:
        lines.append(
            f"accelerator: {cycles:,} cycles, {cycles / profile.clock_mhz / 1e3:.3f} ms at "
            f"{profile.clock_mhz} MHz; the times of its rows are its simulator's on this processor"
        )
    if profile.note:
        lines.append(f"note: {profile.note}")
    return lines


def _cut(name: str) -> str:
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH - 3]}..."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
