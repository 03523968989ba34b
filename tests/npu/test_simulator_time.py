"""What a program costs: the simulator's counts against formulas in Python."""

from __future__ import annotations

import itertools
import random

import numpy as np

from tests.npu import graphs
from tests.short import examples, fresh
from tvmlab import npu
from tvmlab.npu import codegen, isa, simulator

UNITS = (isa.Unit.DMA, isa.Unit.ARRAY, isa.Unit.VECTOR)


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


def cycles(one, config):
    """Cycles on the instruction's unit."""
    if isinstance(one, (isa.Load, isa.Store)):
        return config.dma_latency + ceil(bus_bytes(one, config), config.dma_bytes_per_cycle)
    if isinstance(one, isa.Matmul):
        across = ceil(one.channels, config.rows) * ceil(one.out_channels, config.columns)
        pixels = max(one.out_rows * one.out_cols, config.rows)
        return config.rows + config.columns + one.kernel_h * one.kernel_w * across * pixels
    if isinstance(one, (isa.Depthwise, isa.Pool)):
        passes = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols
    else:
        passes = one.rows * one.cols * (2 if isinstance(one, isa.Add) else 1)
    return config.vector_latency + passes * ceil(one.channels, config.lanes)


def sram_bytes(one):
    """Bytes read from and written to the SRAM, each as often as a tap or a block takes it."""
    if isinstance(one, (isa.Load, isa.Store)):
        moved = one.element * one.count0 * one.count1 * one.count2 * one.count3
        return (0, moved) if isinstance(one, isa.Load) else (moved, 0)
    if isinstance(one, isa.Sum):
        return one.rows * one.cols * one.channels * isa.Dtype(one.dtype).bytes, 0
    if isinstance(one, isa.Requantize):
        table = {0: 0, isa.Rounding.ONNX: 4}.get(one.rounding, 8)
        read = table * (one.channels if one.per_channel else 1)
        return read, one.rows * one.cols * one.channels * isa.Dtype(one.out_dtype).bytes
    if isinstance(one, isa.Add):
        numbers = one.rows * one.cols * one.channels
        sides = isa.Dtype(one.lhs_dtype).bytes
        sides += 0 if one.rhs_address == -1 else isa.Dtype(one.rhs_dtype).bytes
        return numbers * sides, numbers * isa.Dtype(one.out_dtype).bytes
    taps = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols * one.channels
    size = isa.Dtype(one.dtype).bytes if isinstance(one, isa.Pool) else 1
    written = one.out_rows * one.out_cols * one.channels * size if isinstance(one, isa.Pool) else 0
    return taps * size, written


def weight_bytes(one, config):
    """What a convolution reads besides its data; and its multiply-accumulates."""
    taps = one.kernel_h * one.kernel_w * one.channels
    bias = 0 if one.bias == -1 else 4 * one.out_channels
    macs = taps * one.out_rows * one.out_cols
    if isinstance(one, isa.Depthwise):
        return taps * isa.Dtype(one.weight_dtype).bytes + bias, macs
    across = ceil(one.out_channels, config.columns)
    more = (across - 1) * macs  # the data again for each block of output channels
    return across * config.columns * taps + bias + more, macs * one.out_channels


def counted(program):
    """What `simulator.count` gives."""
    config = program.config
    layers = [dict.fromkeys(simulator.COUNTERS, 0) for _ in program.layers]
    totals, parts = dict.fromkeys(UNITS, 0), {unit: [] for unit in UNITS}
    for one in (*program.instructions, None):
        if one is None or isinstance(one, isa.Sync):
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
        time = cycles(one, config)
        totals[one.unit] += time
        parts[one.unit].append((one.layer, time))
        layer[f"{one.unit.name.lower()}_cycles"] += time
        layer["instructions"] += 1
        read, written = sram_bytes(one)
        if isinstance(one, (isa.Matmul, isa.Depthwise)):
            more, macs = weight_bytes(one, config)
            read += more
            layer["array_macs" if isinstance(one, isa.Matmul) else "vector_macs"] += macs
        if isinstance(one, (isa.Load, isa.Store)):
            name = "loaded_bytes" if isinstance(one, isa.Load) else "stored_bytes"
            layer[name] += read + written
            layer["bus_bytes"] += bus_bytes(one, config)
        layer["sram_read_bytes"] += read
        layer["sram_written_bytes"] += written
    return layers


def test_counts():
    """Of compiled networks, whose units work beside each other."""
    for number in range(examples(20)):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        for function in codegen.regions(npu.partition(drawn.mod, config)).values():
            program = codegen.program(function)
            assert simulator.count(program.to_bytes()) == counted(program)
