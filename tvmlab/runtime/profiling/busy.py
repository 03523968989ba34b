"""Signs that the machine did something else while it was measured: numbers that cannot be.

A loop of multiply-adds is the most that the arithmetic units do, rows are parts of the whole, and
being watched takes a fraction of a microsecond for each call. Where what was measured says
otherwise, others ran meanwhile, now beside this loop, now beside that one. The numbers stay as they
were found; `note` says that they are not to be believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Profile

__all__ = ["note"]

# By how much a share may be off on a quiet machine: what `profile` promises of the rows.
_SLACK = 0.05
# Three times what watching a call costs.
_WATCHED = 1e-6


def note(profile: Profile) -> str | None:
    """Say in a sentence that a profile was disturbed.

    Parameters
    ----------
    profile : Profile
        What was measured.

    Returns
    -------
    str or None
        What cannot be, and what to do; None where nothing contradicts itself.
    """
    signs = []
    most = max((row.of_peak for row in profile.rows if row.of_peak is not None), default=0.0)
    if most > 1 + _SLACK:
        signs.append(f"a row computes at {most:.0%} of the peak")
    if abs(profile.covered - 1) > _SLACK:
        signs.append(f"rows add up to {profile.covered:.1%}")
    calls = len(profile.run) - 1
    if not -_SLACK < profile.overhead < _SLACK + calls * _WATCHED / profile.seconds:
        signs.append(f"watching added {profile.overhead:+.1%}")
    if not signs:
        return None
    return (
        f"the machine was busy while it was measured: {', '.join(signs)}; measure again when it is "
        "quiet, in Python in a new process, which measures the limits again"
    )
