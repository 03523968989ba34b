"""What a program costs: the simulator's counts against formulas in Python."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.npu import cases
from tests.short import examples
from tvmlab.npu import isa, simulator
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
    Unit,
)
from tvmlab.npu.program import Dram, Kind, Program

UNITS = (Unit.DMA, Unit.ARRAY, Unit.VECTOR)


def ceil(a, b):
    return -(-a // b)


def bus_bytes(one, config):
    """Whole bursts for each run of neighbours in DRAM, found by their addresses."""
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


def sram_bytes(one):
    """Bytes read from and written to the SRAM, each as often as a tap or a block takes it."""
    if isinstance(one, (Load, Store)):
        moved = one.element * one.count0 * one.count1 * one.count2 * one.count3
        return (0, moved) if isinstance(one, Load) else (moved, 0)
    if isinstance(one, Sum):
        return one.rows * one.cols * one.channels * Dtype(one.dtype).bytes, 0
    if isinstance(one, Requantize):
        table = {0: 0, Rounding.ONNX: 4}.get(one.rounding, 8)
        read = table * (one.channels if one.per_channel else 1)
        return read, one.rows * one.cols * one.channels * Dtype(one.out_dtype).bytes
    if isinstance(one, Add):
        numbers = one.rows * one.cols * one.channels
        sides = Dtype(one.lhs_dtype).bytes
        sides += 0 if one.rhs_address == -1 else Dtype(one.rhs_dtype).bytes
        return numbers * sides, numbers * Dtype(one.out_dtype).bytes
    taps = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols * one.channels
    size = Dtype(one.dtype).bytes if isinstance(one, Pool) else 1
    written = one.out_rows * one.out_cols * one.channels * size if isinstance(one, Pool) else 0
    return taps * size, written


def weight_bytes(one, config):
    """What a convolution reads besides its data; and its multiply-accumulates."""
    taps = one.kernel_h * one.kernel_w * one.channels
    bias = 0 if one.bias == -1 else 4 * one.out_channels
    macs = taps * one.out_rows * one.out_cols
    if isinstance(one, Depthwise):
        return taps * Dtype(one.weight_dtype).bytes + bias, macs
    across = ceil(one.out_channels, config.columns)
    more = (across - 1) * macs  # the data again for each block of output channels
    return across * config.columns * taps + bias + more, macs * one.out_channels


def counted(program):
    """What `simulator.count` gives."""
    config = program.config
    layers = [dict.fromkeys(simulator.load().counter_names().split(), 0) for _ in program.layers]
    totals, parts = dict.fromkeys(UNITS, 0), {unit: [] for unit in UNITS}
    for one in (*program.instructions, None):
        if one is None or isinstance(one, Sync):
            longest = max(UNITS, key=lambda unit: totals[unit])  # the first of those
            if one is not None:
                layers[one.layer]["instructions"] += 1
            for owner, time in parts[longest]:
                layers[owner]["cycles"] += time
            if one is not None:
                owner = parts[longest][-1][0] if parts[longest] else one.layer
                layers[owner]["cycles"] += 1
            totals, parts = dict.fromkeys(UNITS, 0), {unit: [] for unit in UNITS}
            continue
        layer = layers[one.layer]
        time = isa.cycles(one, config)
        totals[one.unit] += time
        parts[one.unit].append((one.layer, time))
        layer[f"{one.unit.name.lower()}_cycles"] += time
        layer["instructions"] += 1
        read, written = sram_bytes(one)
        if isinstance(one, (Matmul, Depthwise)):
            more, macs = weight_bytes(one, config)
            read += more
            layer["array_macs" if isinstance(one, Matmul) else "vector_macs"] += macs
        if isinstance(one, (Load, Store)):
            name = "loaded_bytes" if isinstance(one, Load) else "stored_bytes"
            layer[name] += read + written
            layer["bus_bytes"] += bus_bytes(one, config)
        layer["sram_read_bytes"] += read
        layer["sram_written_bytes"] += written
    return layers


CONFIGS = st.builds(
    Config,
    rows=st.sampled_from([1, 3, 16, 32]),
    columns=st.just(16),
    lanes=st.sampled_from([1, 4, 16, 64]),
    sram_bytes=st.just(4 * cases.PLAY),
    accumulators=st.just(2 * cases.SUMS),
    dma_bytes_per_cycle=st.sampled_from([1, 7, 16]),
    dma_burst_bytes=st.sampled_from([1, 5, 32]),
    dma_latency=st.integers(1, 100),
    vector_latency=st.integers(1, 100),
)


@st.composite
def programs(draw):
    """Draw a program whose units work beside each other.

    Each unit has its own part of the memories: the array the first PLAY bytes and the first SUMS
    accumulators, the vector unit the second ones, transfers the third.
    """
    config = draw(CONFIGS)
    loads = cases.move(Load, 0, 0, 4 * cases.PLAY)
    zeros = 4 * cases.PLAY - cases.SUMS
    instructions = [loads, Sync(0)]
    for half in range(2):  # all sums hold something
        nothing = cases.matmul_of_nothing(zeros, 0, cases.SUMS)
        instructions.append(replace(nothing, sums=half * cases.SUMS))
    instructions.append(Sync(0))
    kinds = [
        cases.convolutions(Matmul).filter(lambda case: case.columns == 16),
        cases.convolutions(Depthwise),
        cases.requantizes(draw(st.sampled_from([Rounding.NONE, Rounding.ONNX]))),
        cases.adds(Rounding.NONE),
        cases.pools(PoolKind.MAX),
        cases.totals(),
    ]
    for _ in range(draw(st.integers(1, 8))):
        layer = draw(st.integers(0, 2))
        if draw(st.integers(0, 2)) == 0:
            instructions.append(replace(transfer(draw), layer=layer))
        else:
            one = draw(st.one_of(kinds)).instruction
            one = one if one.unit == Unit.ARRAY else moved(one, cases.PLAY, cases.SUMS)
            instructions.append(replace(one, layer=layer))
        if draw(st.integers(0, 2)) == 0:
            instructions.append(Sync(layer))
    tensors = (
        Dram(Kind.INPUT, Dtype.uint8, (4 * cases.PLAY,)),
        Dram(Kind.SCRATCH, Dtype.uint8, (cases.PLAY,)),
    )
    return Program(config, tensors, ("a", "b", "c"), tuple(instructions), b"")


def moved(one, address, sums):
    """Move an instruction to another part of the memories."""
    places = ("address", "weights", "bias", "multipliers", "shifts")
    places += tuple(f"{side}_address" for side in ("lhs", "rhs", "out"))
    names = one.__dataclass_fields__
    found = {name: getattr(one, name) for name in places if name in names}
    more = {name: value + address for name, value in found.items() if value != -1}
    if "sums" in names:
        more["sums"] = one.sums + sums
    return replace(one, **more)


def transfer(draw):
    """Draw a transfer: dense or not, innermost dimensions of one number among them."""
    element = draw(st.sampled_from([1, 2, 4]))
    counts = [draw(st.integers(1, 4)) for _ in range(4)]
    strides, extent = [0] * 4, element
    for i in reversed(range(4)):
        strides[i] = extent + draw(st.sampled_from([0, 0, 1, 8]))
        extent = strides[i] * counts[i]
        if counts[i] == 1:
            strides[i] = draw(st.sampled_from([0, strides[i], 1000]))
    dense = [element * math.prod(counts[i + 1 :]) for i in range(4)]
    kind, tensor = draw(st.sampled_from([(Load, 0), (Store, 1)]))
    return kind(0, tensor, 0, 2 * cases.PLAY, element, *counts, *strides, *dense)


@settings(max_examples=examples(100))
@given(programs())
def test_counts(program):
    assert simulator.count(program.to_bytes()) == counted(program)


def test_dimensions_of_one_do_not_break_a_run():
    config = Config(dma_burst_bytes=32, dma_bytes_per_cycle=16, dma_latency=64)
    tensors = (Dram(Kind.INPUT, Dtype.uint8, (4096,)),)
    for counts, strides, expected in [
        ((1, 4, 1, 16), (0, 16, 999, 1), 64),  # one run of 64 bytes
        ((1, 4, 1, 16), (0, 17, 999, 1), 4 * 32),  # four of 16
        ((2, 2, 1, 16), (128, 16, 0, 1), 2 * 32),  # two of 32
        ((1, 2, 4, 16), (0, 16, 32, 1), 8 * 32),  # neighbours, but not one after the other
        ((1, 1, 1, 1), (5, 5, 5, 5), 32),
        ((2, 1, 1, 16), (0, 0, 0, 1), 2 * 32),  # the same bytes twice
    ]:
        one = Load(0, 0, 0, 0, 1, *counts, *strides, 128, 64, 16, 1)
        (layer,) = simulator.count(Program(config, tensors, ("",), (one,), b"").to_bytes())
        assert layer["bus_bytes"] == expected
        assert layer["cycles"] == layer["dma_cycles"] == 64 + ceil(expected, 16)
