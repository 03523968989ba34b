"""Profiles of recordings that are known, by number; and of machines that were busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.runtime.limits import BANDWIDTH, PEAK
from tvmlab.measure.bench import Measurement
from tvmlab.runtime import profiling
from tvmlab.runtime.profiling import Event, Recording
from tvmlab.schedule import Work

pytestmark = pytest.mark.usefixtures("known_limits")


def watched(scale: int) -> tuple[Event, ...]:
    """A run of a machine that spends 10 by itself, 4 more for being watched, and 70 in functions.

    All of that `scale` times as long.
    """
    calls = [("vm.builtin.alloc", 1, 2, 5), ("conv2d", 1, 8, 48), ("inner", 1, 50, 81)]
    calls += [("conv2d", 2, 51, 71), ("mean", 2, 71, 81)]
    run = [("main", 0, 0, 84), *calls]
    return tuple(Event(name, depth, scale * a, scale * b, 8) for name, depth, a, b in run)


def test_rows_of_a_known_recording() -> None:
    """Medians, of each row by itself; what watching costs is nowhere."""
    recording = Recording((80, 160, 800), (watched(1), watched(2), watched(10)))
    work = {"conv2d": Work(100, "float32", "Contraction"), "mean": Work(0, "", "Reduction")}
    rows = {row.name: row for row in profiling._rows(recording, work, {})}
    assert rows.keys() == {"conv2d", "mean", profiling.MACHINE}
    assert rows["conv2d"].seconds == pytest.approx(120e-9)
    assert rows["mean"].seconds == pytest.approx(20e-9)
    # 14 is left of 84, twice, less the 4 by which the quickest run was longer.
    assert rows[profiling.MACHINE].seconds == pytest.approx(24e-9)
    assert (rows["conv2d"].calls, rows["mean"].calls, rows[profiling.MACHINE].calls) == (2, 1, 1)
    assert (rows["conv2d"].operations, rows["conv2d"].bytes) == (200, 16)
    assert rows["conv2d"].share == pytest.approx(120 / 160)
    assert rows["conv2d"].of_peak == pytest.approx(200 / 120e-9 / PEAK)


def test_a_machine_of_which_nothing_is_left() -> None:
    """The functions took the whole run, and more than the runs without a profiler."""
    run = (Event("main", 0, 0, 100, 8), Event("f", 1, 0, 100, 8))
    rows = profiling._rows(Recording((90,), (run,)), {}, {})
    assert {row.name: row.seconds for row in rows}[profiling.MACHINE] == 0
    found = profiling.Profile(rows, Measurement((9e-8,)), Measurement((1e-7,)), "", {}, 1e9, run)
    (machine,) = [row for row in found.data()["rows"] if row["name"] == profiling.MACHINE]
    assert machine["gigabytes"] is machine["gflops"] is None
    assert f"{profiling.MACHINE}  " in str(found)


QUIET = profiling.Profile(
    (profiling.Row("f", "Contraction", 1, 1e-3, 1.0, 8, "float32", 4, 1.04, 30.0),),
    Measurement((1e-3,)),
    Measurement((1.04e-3,)),
    "llvm",
    {"float32": PEAK},
    BANDWIDTH,
    watched(1),
)


@pytest.mark.parametrize(
    ("changed", "sign"),
    [
        ({}, None),
        ({"of_peak": 1.06}, "a row computes at 106% of the peak"),
        ({"of_peak": None}, None),
        ({"seconds": 1.06e-3}, "rows add up to 106.0%"),
        ({"seconds": 0.94e-3}, "rows add up to 94.0%"),
        ({"watched": 0.94e-3}, "watching added -6.0%"),
        ({"watched": 1.06e-3}, "watching added +6.0%"),
        ({"watched": 1.054e-3}, None),  # the five calls of the run may cost as much
    ],
)
def test_a_busy_machine_is_said(changed: dict[str, Any], sign: str | None) -> None:
    """Once each in the table and in the data, and no number is another for it."""
    changed = dict(changed)
    taken = Measurement((changed.pop("watched", 1.04e-3),))
    row = replace(QUIET.rows[0], **changed)
    found = replace(QUIET, rows=(row,), watched=taken)
    assert found.data()["note"] == found.note
    assert found.data()["rows"][0]["of_peak"] == row.of_peak
    noted = [line for line in str(found).splitlines() if "busy" in line]
    if sign is None:
        assert found.note is None
        assert not noted
    else:
        assert found.note is not None
        assert found.note.startswith(f"the machine was busy while it was measured: {sign}; measure")
        assert noted == [f"note: {found.note}"]
