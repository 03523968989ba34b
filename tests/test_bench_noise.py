from __future__ import annotations

import os
from pathlib import Path

import bench_noise
import pytest
from bench_noise import Noise


def test_the_kernel_says_how_long_processors_worked() -> None:
    before = bench_noise._busy_seconds()
    assert before > 0
    sum(range(3_000_000))
    assert bench_noise._busy_seconds() >= before


@pytest.mark.parametrize(
    ("busy", "own", "share"), [(5.0, 1.0, 0.2), (5.0, 5.0, 0.0), (5.0, 6.0, 0.0), (99.0, 0.0, 1.0)]
)
def test_what_others_take(
    busy: float, own: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds on two processors."""
    now = {"seconds": 100.0, "busy": 7.0, "own": 3.0}
    monkeypatch.setattr(bench_noise.time, "perf_counter", lambda: now["seconds"])
    monkeypatch.setattr(bench_noise, "_busy_seconds", lambda: now["busy"])
    monkeypatch.setattr(bench_noise, "_own_seconds", lambda: now["own"])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    noise = Noise()
    now.update(seconds=110.0, busy=7.0 + busy, own=3.0 + own)
    assert noise.share() == pytest.approx(share)


def test_idle_and_guests_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "cpu  100 20 30 9999 8888 4 5 6 777 66\ncpu0 1 1 1 1\n"
    monkeypatch.setattr(Path, "read_text", lambda _path: line)
    assert bench_noise._busy_seconds() == pytest.approx(165 / os.sysconf("SC_CLK_TCK"))
