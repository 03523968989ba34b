"""What the simulator refuses: wrong fields, out of bounds, races, memory that holds nothing."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.npu import cases
from tests.npu import program as programs
from tvmlab.errors import SimulationError
from tvmlab.npu import simulator
from tvmlab.npu.config import Config
from tvmlab.npu.isa import (
    Add,
    Depthwise,
    Dtype,
    Load,
    Matmul,
    Pool,
    PoolKind,
    Requantize,
    Rounding,
    Store,
    Sum,
    Sync,
)
from tvmlab.npu.program import Dram, Kind, Program
from tvmlab.support import toolchain

S = 1024  # bytes of SRAM
LOAD = cases.move(Load, 0, 0, S)
SYNC = Sync(0)
U8 = int(Dtype.uint8)
#: Two by two pixels of four channels at 0, weights at 64, a bias at 512.
MATMUL = Matmul(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 2, 2, 16, 0, 512)
DEPTHWISE = Depthwise(
    *(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 2, 2, 4, 0, 512),
    int(Dtype.int8),
)
#: Of the sums that those make, to 768.
REQUANTIZE = Requantize(
    *(0, 0, 2, 2, 4, -(2**31), 2**31 - 1, int(Rounding.UPWARD), 600, 700, 1, 0, 0, 255),
    *(768, 8, 4, U8),
)
ADD = Add(
    *(0, 2, 2, 4, 0, 8, 4, U8, 0, int(Rounding.UPWARD), 1 << 30, 0, 100, 8, 4, U8, 0, 0, 0, 0),
    *(0, int(Rounding.TFLITE), 1 << 30, 0, 0, 0, 255, 768, 8, 4, U8),
)
POOL = Pool(
    *(0, int(PoolKind.MAX), 0, 8, 4, U8, 2, 2, 4, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    *(1, 1, 768, 4, 4),
)
SUM = Sum(0, 0, 8, 4, U8, 2, 2, 4, 0, 0, 0, 0)
TENSORS = (
    Dram(Kind.INPUT, Dtype.uint8, (S,)),
    Dram(Kind.SCRATCH, Dtype.uint8, (S,)),
    Dram(Kind.CONSTANTS, Dtype.uint8, (3,)),
)


def program(*instructions, tensors=TENSORS, layers=("layer",), config=None):
    constants = b"abc" if any(t.kind == Kind.CONSTANTS for t in tensors) else b""
    config = config or Config(sram_bytes=S, accumulators=64)
    return Program(config, tensors, layers, instructions, constants).to_bytes()


def refused(*instructions, match, number=None, **rest):
    with pytest.raises(SimulationError, match=match) as caught:
        simulator.module("f", program(*instructions, **rest))
    if number is not None:
        kind = type(instructions[number]).__name__
        assert caught.value.where == f"instruction {number} ({kind})"


BEFORE = (LOAD, SYNC, MATMUL, SYNC)


@pytest.mark.parametrize(
    "one", [MATMUL, DEPTHWISE, REQUANTIZE, ADD, POOL, SUM], ids=lambda one: type(one).__name__
)
def test_the_whole_ones_are_taken(one):
    simulator.count(program(*BEFORE, one))


OUTSIDE = [
    *((LOAD, name, value) for name in ("offset", "address") for value in (-1, 1)),
    *((MATMUL, name, S - 3) for name in ("address", "weights", "bias")),
    (MATMUL, "sums", 49),
    (MATMUL, "row_stride", 2**31 - 1),
    *((REQUANTIZE, name, S - 15) for name in ("multipliers", "shifts", "address")),
    *((ADD, name, S - 15) for name in ("lhs_address", "rhs_address", "out_address")),
    (POOL, "out_address", S - 3),
    (SUM, "sums", 61),
]


@pytest.mark.parametrize(("one", "name", "value"), OUTSIDE)
def test_out_of_bounds(one, name, value):
    refused(*BEFORE, replace(one, **{name: value}), number=4, match="reads|writes")


def test_uninitialized_sram():
    some = cases.move(Load, 0, 0, 15)  # one byte of the data is not there
    rest = cases.move(Load, 0, 16, S - 16, 16)
    refused(some, rest, SYNC, MATMUL, number=3, match="reads the SRAM at 15, where nothing")


def test_what_windows_step_over_may_be_missing():
    # Every second pixel of every second row; the others are not loaded.
    pixels = Load(0, 0, 0, 0, 4, 1, 2, 2, 1, 0, 8, 4, 4, 0, 32, 8, 4)
    rest = cases.move(Load, 0, 64, S - 64)
    matmul = replace(MATMUL, row_stride=16, in_rows=4, in_cols=4, stride_h=2, stride_w=2)
    simulator.count(program(pixels, rest, SYNC, matmul))
    taken = replace(matmul, pad_left=1, kernel_w=2)
    refused(pixels, rest, SYNC, taken, number=3, match="the SRAM at 4, where")


def test_uninitialized_accumulators():
    refused(LOAD, SYNC, REQUANTIZE, number=2, match="reads the accumulators at 0, where nothing")


@pytest.mark.parametrize("tensor", [0, 2])
def test_inputs_and_constants_stay(tensor):
    refused(LOAD, SYNC, cases.move(Store, tensor, 0, 1), number=2, match="inputs or constants")


def test_outputs_not_written():
    tensors = TENSORS[0], Dram(Kind.OUTPUT, Dtype.int16, (3, 5))
    store = cases.move(Store, 1, 0, 29, 1)
    refused(LOAD, SYNC, store, tensors=tensors, match="byte 0 of tensor 1, an output")
    simulator.count(program(LOAD, SYNC, cases.move(Store, 1, 0, 30), tensors=tensors))


@pytest.mark.parametrize(
    ("instructions", "what"),
    [
        ((LOAD, MATMUL), "reads the SRAM at 0, which the DMA engine writes"),
        ((LOAD, SYNC, MATMUL, cases.move(Load, 0, 3, 1)), "writes the SRAM at 3, which the array"),
        ((LOAD, SYNC, ADD, cases.move(Load, 0, 768, 1)), "at 768, which the vector unit writes"),
        ((LOAD, SYNC, MATMUL, REQUANTIZE), "reads the accumulators at 0, which the array writes"),
        ((LOAD, SYNC, SUM, MATMUL), "writes the accumulators at 0, which the vector unit writes"),
    ],
)
def test_races(instructions, what):
    refused(*instructions, match=f"a race: it .*{what}", number=len(instructions) - 1)
    simulator.count(program(*instructions[:-1], SYNC, instructions[-1]))


def test_shifts_of_a_table():
    module = simulator.module("f", program(LOAD, SYNC, MATMUL, SYNC, REQUANTIZE))
    data = np.zeros(S, np.uint8)
    data[704:708] = np.int32([31]).view(np.uint8)
    with pytest.raises(SimulationError, match="a shift in its table is 31") as caught:
        module["f"](data)
    assert caught.value.where == "instruction 4 (Requantize)"


DATA = programs.small_network().to_bytes()


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
    # Not REQUANTIZE: the driver's data hold no table of shifts.
    wholes = [LOAD, MATMUL, DEPTHWISE, ADD, POOL, SUM]
    datas = [DATA, *(program(*BEFORE, one) for one in wholes)]
    outside = [program(*BEFORE, replace(one, **{name: at})) for one, name, at in OUTSIDE]
    content = b"".join(struct.pack("<I", len(data)) + data for data in [*datas, *outside])
    file.write_bytes(content)
    done = subprocess.run([driver, file], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [line.split()[0] for line in done.stdout.splitlines()]
    assert found == ["done"] * len(datas) + ["refused"] * len(outside)
