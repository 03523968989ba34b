"""Damaged programs: refused, or executed within their bounds; also under the sanitizers."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.npu import program as programs
from tests.npu.machine import Machine
from tests.short import examples, fresh, long
from tvmlab.errors import InputError, SimulationError
from tvmlab.npu import simulator
from tvmlab.npu.isa import Load, Store, Sync
from tvmlab.support import toolchain

DATA = programs.small_network().to_bytes()
COUNT = examples(1000)


def inputs():
    return np.random.default_rng(1).integers(0, 256, programs.INPUT, np.uint8)


def damages(seed, mend):
    rng = np.random.default_rng(fresh(seed))
    found = [programs.damaged(DATA, rng) for _ in range(COUNT)]
    return [programs.mended(data) for data in found] if mend else found


def test_the_whole_program_computes_what_the_machine_does():
    program = programs.small_network()
    memory = [np.zeros(tensor.nbytes, np.uint8) for tensor in program.tensors]
    memory[0][:] = inputs().ravel()
    memory[1][:] = np.frombuffer(program.constants, np.uint8)
    config = program.config
    machine = Machine(
        np.zeros(config.sram_bytes, np.uint8), np.zeros(config.accumulators, np.int32), 16
    )
    for one in program.instructions:
        if not isinstance(one, Sync):
            transfer = isinstance(one, (Load, Store))
            machine.execute(one, memory[one.tensor] if transfer else None)
    found = simulator.simulate(DATA, [inputs()])
    for tensor, expected in zip(found, memory[2:4], strict=True):
        np.testing.assert_array_equal(tensor.ravel(), expected)
        assert len(np.unique(tensor)) > 2  # it is not all clipped


def test_damage_is_seen_by_the_checksum():
    for data in damages(0, mend=False):
        with pytest.raises(SimulationError):
            simulator.count(data)


def test_damage_with_a_checksum_ends_in_an_error_or_a_result():
    ends = {"result": 0, "refused": 0, "other tensors": 0}
    for data in damages(1, mend=True):
        try:
            simulator.simulate(data, [inputs()])
            ends["result"] += 1
        except SimulationError:
            ends["refused"] += 1
        except InputError:
            ends["other tensors"] += 1
    assert sum(ends.values()) == COUNT
    assert ends["result"] > COUNT / 20
    assert ends["refused"] > COUNT / 2


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Build the simulator with AddressSanitizer and UndefinedBehaviorSanitizer."""
    build = tmp_path_factory.mktemp("sanitized")
    cmake, ninja = toolchain.find_tool("cmake"), toolchain.find_tool("ninja")
    tools = [
        f"-DCMAKE_CXX_COMPILER={toolchain.compiler().path}",
        f"-DCMAKE_MAKE_PROGRAM={ninja.path}",
        f"-DNPU={simulator.SOURCES}",
    ]
    source = Path(__file__).parents[1] / "native"
    toolchain.run([cmake.path, "-S", source, "-B", build, "-G", "Ninja", *tools])
    toolchain.run([cmake.path, "--build", build])
    return build / "npu_driver"


def drive(driver, folder, datas):
    """A line for each program; fails if a sanitizer finds anything."""
    file = folder / "programs"
    file.write_bytes(b"".join(struct.pack("<I", len(data)) + data for data in datas))
    done = subprocess.run([driver, file], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert len(lines) == len(datas)
    return lines


@pytest.mark.parametrize("mend", [pytest.param(False, marks=long), True])
def test_no_sanitizer_finds_anything(driver, tmp_path, mend):
    whole, *lines = drive(driver, tmp_path, [DATA, *damages(2, mend)])
    assert whole.startswith("done ")
    done = sum(line.startswith("done ") for line in lines)
    assert done > COUNT / 20 if mend else done == 0


@long
def test_the_sanitizers_are_there(driver):
    symbols = driver.read_bytes()
    assert b"__asan_report_load" in symbols
    assert b"__ubsan_handle" in symbols
