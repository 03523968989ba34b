"""Every instruction of the accelerator, in the simulator and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.npu import cases
from tests.npu.cases import HIGH, LOW
from tests.npu.machine import FIXED, Machine
from tests.short import examples
from tvmlab.npu import isa, simulator
from tvmlab.npu.config import Config
from tvmlab.npu.program import Dram, Kind, Program


def check(case):
    sram, sums = cases.run(case)
    machine = Machine(case.sram, case.sums, case.columns)
    machine.execute(case.instruction)
    np.testing.assert_array_equal(sums, machine.sums)
    np.testing.assert_array_equal(sram, machine.sram)


@settings(max_examples=examples(200))
@given(st.data())
@pytest.mark.parametrize("kind", [isa.Matmul, isa.Depthwise])
def test_convolutions(kind, data):
    check(data.draw(cases.convolutions(kind)))


@settings(max_examples=examples(150))
@given(st.data())
@pytest.mark.parametrize("rounding", list(isa.Rounding))
def test_requantize(rounding, data):
    check(data.draw(cases.requantizes(rounding)))


@pytest.mark.parametrize("shift", [-31, -30, -1, 0, 1, 30])
@pytest.mark.parametrize("rounding", FIXED)
def test_requantize_at_the_ends(rounding, shift):
    # Every pair of an extreme sum and an extreme multiplier.
    ends = np.array([LOW, LOW + 1, -(1 << 30), -1, 0, 1, (1 << 30) - 1, 1 << 30, HIGH], np.int32)
    count = len(ends) ** 2
    sram, sums = np.zeros(cases.PLAY, np.uint8), np.zeros(cases.SUMS, np.int32)
    sums[:count], multipliers = (part.ravel() for part in np.meshgrid(ends, ends))
    sram[: 4 * count] = multipliers.view(np.uint8)
    sram[1000 : 1000 + 4 * count] = np.full(count, shift, np.int32).view(np.uint8)
    sizes = (0, 1, 1, count, LOW, HIGH, rounding, 0, 1000, 1, 5, LOW, HIGH)
    check(cases.Case(isa.Requantize(0, *sizes, 2000, 0, 0, isa.Dtype.int32), sram, sums))


@settings(max_examples=examples(150))
@given(st.data())
@pytest.mark.parametrize("rounding", list(isa.Rounding)[:5])
def test_add(rounding, data):
    check(data.draw(cases.adds(rounding)))


@settings(max_examples=examples(150))
@given(st.data())
@pytest.mark.parametrize("kind", list(isa.PoolKind))
def test_pool(kind, data):
    check(data.draw(cases.pools(kind)))


@settings(max_examples=examples(150))
@given(cases.totals())
def test_sum(case):
    check(case)


@st.composite
def boxes(draw):
    """Draw a transfer: element, counts, strides in DRAM and in SRAM, none of which overlap."""
    element = draw(st.sampled_from([1, 2, 4, 8]))
    counts = [draw(st.integers(1, 4)) for _ in range(4)]

    def strides():
        found, extent = [0] * 4, element
        for i in draw(st.permutations(range(4))):
            found[i] = extent + draw(st.sampled_from([0, 0, 0, 1, 4]))
            extent = found[i] * counts[i]
        return found, extent

    return element, counts, strides(), strides()


@settings(max_examples=examples(200))
@given(boxes(), st.integers(0, 7), st.integers(0, 7), st.integers(0, 2**32))
def test_transfers(box, offset, address, seed):
    element, counts, (dram, dram_size), (sram, sram_size) = box
    size, room = offset + dram_size, address + sram_size
    config = Config(sram_bytes=room)
    tensors = (
        Dram(Kind.INPUT, isa.Dtype.uint8, (size,)),
        Dram(Kind.INPUT, isa.Dtype.uint8, (room,)),
        Dram(Kind.OUTPUT, isa.Dtype.uint8, (room,)),
        Dram(Kind.OUTPUT, isa.Dtype.uint8, (size,)),
    )
    fields = (offset, address, element, *counts, *dram, *sram)
    load, store = isa.Load(0, 0, *fields), isa.Store(0, 3, *fields)
    instructions = (
        *(cases.move(isa.Load, 1, 0, room), load, cases.move(isa.Store, 2, 0, room)),
        *(
            cases.move(isa.Load, 0, 0, min(size, room)),
            cases.move(isa.Store, 3, 0, min(size, room)),
        ),
        *(cases.move(isa.Store, 3, 0, 1, at) for at in range(room, size)),
        *(cases.move(isa.Load, 1, 0, room), store),
    )
    rng = np.random.default_rng(seed)
    given = [rng.integers(0, 256, count, np.uint8) for count in (size, room)]
    data = Program(config, tensors, ("layer",), instructions, b"").to_bytes()
    memory = [*given, np.zeros(room, np.uint8), np.zeros(size, np.uint8)]
    machine = Machine(memory[2], np.zeros(1, np.int32), 16)
    for one in instructions:
        machine.execute(one, memory[one.tensor])
    for found, expected in zip(simulator.simulate(data, given), memory[2:], strict=True):
        np.testing.assert_array_equal(found, expected)
