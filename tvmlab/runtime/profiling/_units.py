"""Units that fit: one for a whole column, so that its numbers can be compared at a glance."""

from __future__ import annotations

__all__ = ["SIZES", "TIMES", "fitting"]

#: Seconds and bytes, the largest units first.
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def fitting(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Choose the largest unit that is not larger than a value, or the smallest one."""
    return next((unit for unit in units if unit[0] <= value), units[-1])
