"""The simulator as a runtime module: its function, saved and loaded; what it refuses."""

from __future__ import annotations

import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

from tests.npu.cases import INPUT, move, small_network
from tvmlab.errors import InputError, SimulationError
from tvmlab.npu import simulator
from tvmlab.npu.isa import Load, Rounding, Store, Sync
from tvmlab.support import toolchain

DATA = small_network().to_bytes()


def tensors(seed=0):
    x = np.random.default_rng(seed).integers(0, 256, INPUT, np.uint8)
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
        (lambda x, y, z: (x.astype(np.int8), y, z), "f: input 0 .*must be uint8, not int8"),
        (lambda x, y, z: (x[:5], y, z), r"input 0 .*shape \[6, 6, 4\], not \[5, 6, 4\]"),
        (lambda x, y, z: (x, y, np.zeros(8, np.uint8)[::2]), "output 2 .*must be contiguous"),
        (lambda x, y, z: (x, y), "f takes 3 tensors, not 2"),
        (lambda x, y, z: (None, y, z), "input 0 .*is not a tensor"),
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
        with pytest.raises(InputError, match=f"takes 1 inputs, not {len(inputs)}"):
            simulator.simulate(DATA, inputs)


def test_many_threads_at_once():
    function = simulator.module("f", DATA)["f"]
    given = [tensors(seed) for seed in range(8)]
    expected = [simulator.simulate(DATA, one[:1]) for one in given]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(200):
            list(pool.map(lambda one: function(*one), given))
    for one, results in zip(given, expected, strict=True):
        for found, result in zip(one[1:], results, strict=True):
            np.testing.assert_array_equal(found, result)


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


WHOLE = small_network()
PLACES = {at: one for at, one in enumerate(WHOLE.instructions) if not isinstance(one, Sync)}
FIELDS = ("address", "offset", "weights", "bias", "multipliers", "shifts", "sums")
FIELDS += ("lhs_address", "rhs_address", "out_address")


def changed(changes=None, **parts):
    kept = dict(enumerate(WHOLE.instructions)) | (changes or {})
    instructions = tuple(one for one in kept.values() if one is not None)
    return replace(WHOLE, instructions=instructions, **parts).to_bytes()


#: Programs whose one instruction leads out of a memory.
OUTSIDE = [
    (at, name, changed({at: replace(one, **{name: 1 << 24})}))
    for at, one in PLACES.items()
    for name in FIELDS
    if name in one.names and (name != "shifts" or one.rounding < Rounding.ONNX)
]


@pytest.mark.parametrize(("at", "name", "data"), OUTSIDE)
def test_out_of_bounds(at, name, data):
    with pytest.raises(SimulationError, match=r"reads|writes") as caught:
        simulator.module("f", data)
    assert caught.value.where == f"instruction {at} ({type(WHOLE.instructions[at]).__name__})"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({1: None}, "reads the SRAM at 1024, where nothing"),
        ({0: replace(PLACES[0], count3=5, count2=1)}, "reads the SRAM at 20, where nothing"),
        ({3: None}, "reads the accumulators at 0, where nothing"),
        ({13: None}, "reads the tensor at 0, where nothing"),
        ({16: None}, "byte 0 of tensor 3, an output, was never written"),
        ({13: move(Store, 0, 0, 1)}, "inputs or constants"),
        ({2: None}, "a race: it reads the SRAM at 0, which the DMA engine writes"),
        ({5: None}, "a race: it reads the accumulators at 0, which the array writes"),
        ({4: move(Load, 0, 3, 1)}, "a race: it writes the SRAM at 3, which the array reads"),
    ],
)
def test_what_holds_nothing_and_what_races(changes, match):
    with pytest.raises(SimulationError, match=match):
        simulator.count(changed(changes))


def test_shifts_of_a_table():
    at = WHOLE.constants.index(np.full(4, -8, np.int32).tobytes())
    constants = WHOLE.constants[:at] + np.int32([31]).tobytes() + WHOLE.constants[at + 4 :]
    with pytest.raises(SimulationError, match="a shift in its table is 31") as caught:
        simulator.simulate(changed(constants=constants), [np.zeros(INPUT, np.uint8)])
    assert caught.value.where == "instruction 6 (Requantize)"


def test_no_sanitizer_finds_an_access_out_of_bounds(tmp_path):
    """Built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    cmake, ninja = toolchain.find_tool("cmake"), toolchain.find_tool("ninja")
    tools = [
        f"-DCMAKE_CXX_COMPILER={toolchain.compiler().path}",
        f"-DCMAKE_MAKE_PROGRAM={ninja.path}",
        f"-DNPU={simulator.SOURCES}",
    ]
    source = Path(__file__).parents[1] / "native"
    toolchain.run([cmake.path, "-S", source, "-B", tmp_path, "-G", "Ninja", *tools])
    toolchain.run([cmake.path, "--build", tmp_path])
    driver, file = tmp_path / "npu_driver", tmp_path / "programs"
    assert b"__asan_report_load" in driver.read_bytes()
    datas = [WHOLE.to_bytes(), *(data for _, _, data in OUTSIDE)]
    file.write_bytes(b"".join(struct.pack("<I", len(data)) + data for data in datas))
    done = subprocess.run([driver, file], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [line.split()[0] for line in done.stdout.splitlines()]
    assert found == ["done"] + ["refused"] * len(OUTSIDE)
