from __future__ import annotations

import numpy as np
import pytest

import tvmlab
from tvmlab.errors import InputError
from tvmlab.measure import bench
from tvmlab.runtime import peak as _peak
from tvmlab.schedule import Machine


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


def test_the_peak_is_measured() -> None:
    assert 0 < bench.peak_flops() < np.inf


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_the_loop_of_dot_products_computes_what_its_operations_say(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are done, and in order: NumPy does them after it."""
    machine = Machine.of(tvmlab.host_target())
    dot = machine.dot8 or machine.dot16 if dtype == "int8" else machine.dot16
    if dot is None:
        pytest.skip(f"this processor lacks an instruction that sums products of {dtype}")
    monkeypatch.setattr(_peak, "_STEPS", 50)
    loop = bench.PeakLoop(dtype)
    loop()
    held = loop._before.numpy()
    for _ in range(50):
        factors = held.view(dot.data).reshape(*held.shape, dot.depth)
        held = held + factors.astype(np.int32).sum(axis=-1, dtype=np.int32) * np.int32(3)
    np.testing.assert_array_equal(loop._after.numpy(), held)
    assert loop.flops == 50 * held.size * dot.depth * 2


@pytest.mark.parametrize("dtype", ["int32", "float16", ""])
def test_a_dtype_that_has_no_loop(dtype: str) -> None:
    with pytest.raises(InputError, match=f"no peak loop for '{dtype}'"):
        bench.PeakLoop(dtype)


def test_a_processor_without_dot_products(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Machine(vector_bytes=16, registers=32, threads=1)
    monkeypatch.setattr(_peak.Machine, "of", lambda target: plain)
    with pytest.raises(InputError, match="no peak loop for 'int8'"):
        bench.PeakLoop("int8")
