"""The simulator as a runtime module: its function, saved and loaded, called by many at once."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.npu import program as programs
from tvmlab.errors import InputError, SimulationError, ToolchainError
from tvmlab.npu import simulator
from tvmlab.support import toolchain

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


def test_tensors_of_tvm_are_taken():
    given = tensors()
    arrays = [tvm.runtime.tensor(one) for one in given]
    module = simulator.module("f", DATA)
    module["f"](*arrays)
    module["f"](*given)
    for array, one in zip(arrays, given, strict=True):
        np.testing.assert_array_equal(array.numpy(), one)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda x, y, z: (x.astype(np.int8), y, z), "f: input 0 .*must be uint8, and is int8"),
        (lambda x, y, z: (x, y.astype(np.int32), z), "f: output 1 .*must be uint8, and is int32"),
        (lambda x, y, z: (x[:5], y, z), r"input 0 .*shape \[6, 6, 4\], and has \[5, 6, 4\]"),
        (lambda x, y, z: (x.reshape(36, 4), y, z), r"input 0 .*and has \[36, 4\]"),
        (lambda x, y, z: (x.transpose(1, 0, 2), y, z), "input 0 .*must be contiguous"),
        (lambda x, y, z: (x, y, np.zeros(8, np.uint8)[::2]), "output 2 .*must be contiguous"),
        (lambda x, y, z: (x, y), "output 2 .*is missing"),
        (lambda x, y, z: (), "input 0 .*is missing"),
        (lambda x, y, z: (x, y, z, z), "f takes 3 tensors, and got 4"),
        (lambda x, y, z: (x, y, 1), "output 2 .*is no tensor"),
        (lambda x, y, z: (None, y, z), "input 0 .*is no tensor"),
    ],
)
def test_other_tensors(change, what):
    module = simulator.module("f", DATA)
    given = tensors()
    with pytest.raises(InputError, match=what):
        module["f"](*change(*given))
    assert not given[1].any()


def test_a_part_of_a_tensor():
    # Its data begin somewhere inside of an allocation.
    whole = np.zeros((3, *programs.INPUT), np.uint8)
    given = tensors()
    whole[1] = given[0]
    expected = simulator.simulate(DATA, given[:1])
    found = simulator.simulate(DATA, [whole[1]])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


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


LOAD = """
import sys
import numpy as np
import tvm
from tvmlab.npu import simulator

simulator.load()
library = tvm.runtime.load_module(sys.argv[1])
with np.load(sys.argv[2]) as file:
    given = [file[name].copy() for name in ("x", "y", "z")]
(module,) = [one for one in library.imports if one.kind == "tvmlab_npu"]
module["region_0"](*given)
np.savez(sys.argv[3], *given[1:])
"""


def test_saved_in_a_library_and_loaded_in_a_fresh_process(tmp_path):
    made = relax.ExecBuilder().get()
    made.mod.import_module(simulator.module("region_0", DATA))
    made.export_library(str(tmp_path / "lib.so"))
    given = tensors()
    np.savez(tmp_path / "given.npz", **dict(zip("xyz", given, strict=True)))
    paths = [tmp_path / name for name in ("lib.so", "given.npz", "found.npz")]
    subprocess.run([sys.executable, "-c", LOAD, *map(str, paths)], check=True, timeout=120)
    with np.load(paths[-1]) as found:
        for name, expected in zip(found, simulator.simulate(DATA, given[:1]), strict=True):
            np.testing.assert_array_equal(found[name], expected)


def load(saved):
    return tvm.get_global_func("ffi.Module.load_from_bytes.tvmlab_npu")(saved)


def test_saved_bytes():
    # The symbol's length and checksum, the symbol, the program.
    symbol = "région".encode()
    saved = struct.pack("<2I", len(symbol), zlib.crc32(symbol)) + symbol + DATA
    given = tensors()
    load(saved)["région"](*given)
    np.testing.assert_array_equal(given[1], simulator.simulate(DATA, given[:1])[0])
    for at in (*range(12), *range(12, len(saved), 97)):
        spoilt = bytearray(saved)
        spoilt[at] ^= 4
        with pytest.raises(SimulationError):
            load(bytes(spoilt))
        with pytest.raises(SimulationError):
            load(saved[:at])


@pytest.mark.parametrize("missing", ["cmake", "ninja", "g++"])
def test_without_the_tools(missing, tmp_path, monkeypatch):
    names = {"cmake", "ninja", "g++"} - {missing}
    for tool in map(toolchain.find_tool, names):
        (tmp_path / tool.name).symlink_to(tool.path)
    monkeypatch.setenv("PATH", str(tmp_path))
    # Nor was it built before: that would serve.
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolchainError, match=r"is not installed|No C\+\+ compiler") as caught:
        simulator.library()
    assert missing in caught.value.fix
    assert "nstall" in caught.value.fix
