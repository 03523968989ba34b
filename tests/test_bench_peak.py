from __future__ import annotations

import numpy as np
import pytest

from tvmlab import _peak, bench
from tvmlab.errors import InputError


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loop_computes_what_its_operations_say(dtype: str) -> None:
    """Halved and a half added, so often that every number arrives at one: no step is left out."""
    loop = bench.PeakLoop(dtype)
    loop()
    after = loop._after.numpy()
    assert after.dtype == dtype
    assert np.all(after == 1)
    assert not np.any(loop._before.numpy() == 1)
    threads, chains, lanes = after.shape
    assert threads == bench.peer_threads()
    assert loop.flops % (2 * threads * chains * lanes) == 0
    assert lanes * after.itemsize in (16, 32, 64)
    assert chains >= 12


def test_wider_numbers_are_fewer() -> None:
    assert bench.PeakLoop("float32").flops == 2 * bench.PeakLoop("float64").flops


def test_the_peak_is_a_speed_of_this_world() -> None:
    assert 1e8 < bench.peak_flops() < 1e15


def test_a_dtype_that_has_no_loop() -> None:
    with pytest.raises(InputError, match="no peak loop for 'int8'"):
        bench.PeakLoop("int8")


def test_of_the_samples_the_shortest_counts_and_no_warm_up(monkeypatch):
    seconds = iter([1.0, 5.0, 3.0, 4.0])  # of each call
    now = 0.0

    def loop() -> None:
        nonlocal now
        now += next(seconds)

    monkeypatch.setattr(_peak.time, "perf_counter", lambda: now)
    assert _peak.shortest(loop, warmup=1, samples=3) == 3.0
