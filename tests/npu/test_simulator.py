"""Every instruction of the accelerator, in the simulator and in NumPy; and what it costs."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.npu import cases, graphs
from tests.npu.cases import HIGH, LOW
from tests.npu.machine import FIXED, Machine
from tests.short import examples, fresh
from tvmlab import npu
from tvmlab.npu import codegen, isa, simulator
from tvmlab.npu.config import Config
from tvmlab.npu.program import Dram, Kind, Program


def check(case):
    sram, sums = cases.run(case)
    machine = Machine(case.sram, case.sums, case.columns)
    machine.execute(case.instruction)
    np.testing.assert_array_equal(sums, machine.sums)
    np.testing.assert_array_equal(sram, machine.sram)


INSTRUCTIONS = (
    *(cases.convolutions(kind) for kind in (isa.Matmul, isa.Depthwise)),
    *(cases.requantizes(rounding) for rounding in isa.Rounding),
    *(cases.adds(rounding) for rounding in list(isa.Rounding)[:5]),
    *(cases.pools(kind) for kind in isa.PoolKind),
    cases.totals(),
)


@settings(max_examples=examples(200))
@given(st.data())
@pytest.mark.parametrize("strategy", INSTRUCTIONS, ids=str)
def test_instructions(strategy, data):
    check(data.draw(strategy))


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


def test_an_onnx_addition_rounds_large_operands_to_float32():
    # Each int32 is rounded before the multiplication by 0.75, and again after it.
    sram, sums = np.zeros(cases.PLAY, np.uint8), np.zeros(cases.SUMS, np.int32)
    sram[:1024] = np.arange(HIGH - 255, HIGH + 1, dtype=np.int32).view(np.uint8)
    ratio = int(np.float32(0.75).view(np.int32))
    side = (1024, 1024, isa.Dtype.int32, 0, isa.Rounding.ONNX, ratio, 0)
    left, none = (0, *side), (-1, *side)
    out = (isa.Rounding.ONNX, 0, 0, 0, LOW, HIGH, 2000, 1024, 1024, isa.Dtype.int32)
    check(cases.Case(isa.Add(0, 1, 1, 256, *left, *none, 0, *out), sram, sums))


@st.composite
def boxes(draw):
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
        *(cases.move(kind, at, 0, min(size, room)) for kind, at in ((isa.Load, 0), (isa.Store, 3))),
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


def ceil(a, b):
    return -(-a // b)


def size(one, name):
    return isa.Dtype(getattr(one, name)).bytes


def bus_bytes(one, config):
    counts = one.count0, one.count1, one.count2, one.count3
    strides = one.dram0, one.dram1, one.dram2, one.dram3
    starts = [np.dot(at, strides) for at in np.ndindex(*counts)]
    runs = [one.element]
    for before, start in itertools.pairwise(starts):
        if start == before + one.element:
            runs[-1] += one.element
        else:
            runs.append(one.element)
    # All runs are as long as the shortest: what meets by chance further out does not count.
    run = min(runs)
    return sum(runs) // run * ceil(run, config.dma_burst_bytes) * config.dma_burst_bytes


def cost(one, config):
    if isinstance(one, (isa.Load, isa.Store)):
        moved = one.element * one.count0 * one.count1 * one.count2 * one.count3
        bus, load = bus_bytes(one, config), isinstance(one, isa.Load)
        names = (
            ("loaded_bytes", "sram_written_bytes") if load else ("stored_bytes", "sram_read_bytes")
        )
        cycles = config.dma_latency + ceil(bus, config.dma_bytes_per_cycle)
        return cycles, {"bus_bytes": bus, **dict.fromkeys(names, moved)}
    more, read = {}, 0
    if isinstance(one, (isa.Matmul, isa.Depthwise, isa.Pool)):
        taps, pixels = one.kernel_h * one.kernel_w, one.out_rows * one.out_cols
        passes, macs = taps * pixels, taps * pixels * one.channels
    else:
        pixels = one.rows * one.cols
        passes = pixels * (2 if isinstance(one, isa.Add) else 1)
    for name in ("out_dtype", "dtype") if isinstance(one, isa.Pool) else ("out_dtype",):
        if name in one.names:
            more["sram_written_bytes"] = pixels * one.channels * size(one, name)
    cycles = config.vector_latency + passes * ceil(one.channels, config.lanes)
    if isinstance(one, (isa.Matmul, isa.Depthwise)):
        read = 0 if one.bias == -1 else 4 * one.out_channels
    if isinstance(one, isa.Matmul):
        blocks = ceil(one.out_channels, config.columns)  # the data are read again for each
        read += blocks * (macs + config.columns * taps * one.channels)
        more["array_macs"] = macs * one.out_channels
        across = ceil(one.channels, config.rows) * blocks
        cycles = config.rows + config.columns + taps * across * max(pixels, config.rows)
    elif isinstance(one, isa.Depthwise):
        read += macs + taps * one.channels * size(one, "weight_dtype")
        more["vector_macs"] = macs
    elif isinstance(one, isa.Pool):
        read = macs * size(one, "dtype")
    elif isinstance(one, isa.Requantize):
        table = {0: 0, isa.Rounding.ONNX: 4}.get(one.rounding, 8)
        read = table * (one.channels if one.per_channel else 1)
    else:
        names = ("lhs_dtype", "rhs_dtype") if isinstance(one, isa.Add) else ("dtype",)
        read = pixels * one.channels * sum(size(one, name) for name in names)
    return cycles, {"sram_read_bytes": read, **more}


def counted(program):
    layers = [Counter(dict.fromkeys(simulator.COUNTERS, 0)) for _ in program.layers]
    work = {unit: [] for unit in list(isa.Unit)[:3]}
    for one in (*program.instructions, None):
        if one is None or isinstance(one, isa.Sync):
            longest = max(work.values(), key=lambda done: sum(time for _, time in done))
            for owner, time in longest:
                owner["cycles"] += time
            if one is not None:
                layers[one.layer]["instructions"] += 1
                (longest[-1][0] if longest else layers[one.layer])["cycles"] += 1
            work = {unit: [] for unit in work}
            continue
        time, more = cost(one, program.config)
        layers[one.layer].update(
            {f"{one.unit.name.lower()}_cycles": time, "instructions": 1, **more}
        )
        work[one.unit].append((layers[one.layer], time))
    return layers


def test_counts():
    """Of compiled networks, whose units work beside each other."""
    for number in range(examples(20)):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        for function in codegen.regions(npu.partition(drawn.mod, config)).values():
            program = codegen.program(function)
            assert simulator.count(program.to_bytes()) == counted(program)
