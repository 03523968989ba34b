"""The simulator as a runtime module: its function, saved and loaded, called by many at once."""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest
import tvm

from tests.npu import program as programs
from tvmlab.errors import InputError, SimulationError
from tvmlab.npu import simulator

DATA = programs.small_network().to_bytes()


def tensors(seed=0):
    """One input and room for two outputs."""
    x = np.random.default_rng(seed).integers(0, 256, programs.INPUT, np.uint8)
    return [x, np.zeros((3, 3, 4), np.uint8), np.zeros(4, np.uint8)]


def test_the_function_fills_its_outputs():
    module = simulator.module("region_0", DATA)
    assert module.kind == "tvmlab_npu"
    given = tensors()
    module["region_0"](*given)
    for found, expected in zip(given[1:], simulator.simulate(DATA, given[:1]), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(AttributeError):
        module["region_1"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda x, y, z: (x.astype(np.int8), y, z), "f: input 0 .*must be uint8, and is int8"),
        (lambda x, y, z: (x[:5], y, z), r"input 0 .*shape \[6, 6, 4\], and has \[5, 6, 4\]"),
        (lambda x, y, z: (x, y, np.zeros(8, np.uint8)[::2]), "output 2 .*must be contiguous"),
        (lambda x, y, z: (x, y), "output 2 .*is missing"),
        (lambda x, y, z: (x, y, z, z), "f takes 3 tensors, and got 4"),
        (lambda x, y, z: (None, y, z), "input 0 .*is no tensor"),
    ],
)
def test_other_tensors(change, what):
    module = simulator.module("f", DATA)
    given = tensors()
    with pytest.raises(InputError, match=what):
        module["f"](*change(*given))
    assert not given[1].any()


def test_simulate_takes_read_only_arrays_and_counts_them():
    x = tensors()[0]
    expected = simulator.simulate(DATA, [x])
    x.setflags(write=False)
    np.testing.assert_array_equal(simulator.simulate(DATA, [x])[0], expected[0])
    for inputs in ([], [x, x]):
        with pytest.raises(InputError, match=f"takes 1 inputs, and got {len(inputs)}"):
            simulator.simulate(DATA, inputs)


def test_many_threads_at_once():
    function = simulator.module("f", DATA)["f"]
    given = [tensors(seed) for seed in range(8)]
    expected = [simulator.simulate(DATA, one[:1]) for one in given]
    start = threading.Barrier(8)

    def work(one):
        start.wait()
        for _ in range(200):
            function(*one)

    threads = [threading.Thread(target=work, args=(one,)) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, (first, second) in zip(given, expected, strict=True):
        np.testing.assert_array_equal(one[1], first)
        np.testing.assert_array_equal(one[2], second)


def test_saved_bytes():
    load = tvm.get_global_func("ffi.Module.load_from_bytes.tvmlab_npu")
    # The symbol's length, the symbol, the program.
    symbol = "région".encode()
    saved = struct.pack("<I", len(symbol)) + symbol + DATA
    given = tensors()
    load(saved)["région"](*given)
    np.testing.assert_array_equal(given[1], simulator.simulate(DATA, given[:1])[0])
    for spoilt in (saved[:2], saved[:8], saved[:-1]):
        with pytest.raises(SimulationError):
            load(spoilt)
