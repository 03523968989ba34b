"""Cycles by layer, with lower bounds for any tiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
import tvm

from ..errors import InputError
from . import reading, simulator
from .codegen import regions
from .codegen.lower import compile_region
from .codegen.memory import LayerPlan, plan_memory
from .codegen.tiling import Tiling
from .config import Config
from .energy import SOURCE, picojoules
from .isa import Load, Store
from .program import Kind, Program


@dataclass(frozen=True)
class Row:
    """The cost of one or more layers: counters of `tvmlab.npu.simulator.count`, the tiling."""

    name: str
    config: Config = field(repr=False)
    counters: dict[str, int]
    tiling: Tiling | None = None

    @property
    def cycles(self) -> int:
        """Cycles; each cycle is counted for one layer only."""
        return self.counters["cycles"]

    @property
    def moved(self) -> int:
        """Bytes loaded and stored."""
        return self.counters["loaded_bytes"] + self.counters["stored_bytes"]

    @property
    def array_bound(self) -> float:
        """Cycles of the multiply-accumulates if the whole array is always busy."""
        return self.counters["array_macs"] / (self.config.rows * self.config.columns)

    @property
    def utilisation(self) -> float:
        """Busy share of the array; above 1 if some of its cycles count for another layer."""
        return self.array_bound / self.cycles if self.cycles else 0.0

    @property
    def energy(self) -> dict[str, float]:
        """Picojoule by part (`tvmlab.npu.energy.picojoules`)."""
        return picojoules(self.counters, self.config)


@dataclass(frozen=True)
class Table:
    """The cost of a region: its layers in the order of the program, and their sum in `total`.

    `needed` counts each byte of inputs, constants and outputs once.
    """

    name: str
    config: Config
    layers: tuple[Row, ...]
    total: Row
    needed: int

    @property
    def bounds(self) -> dict[str, float]:
        """Lower bounds for any tiling, in cycles: a busy array, a DMA that moves each byte once."""
        dma = self.needed / self.config.dma_bytes_per_cycle
        return {"array": self.total.array_bound, "dma": dma}

    def __str__(self) -> str:
        config, total, bounds = self.config, self.total, self.bounds
        width = max(len(row.name) for row in (*self.layers, total))
        lines = [
            f"{self.name}: {config.rows}x{config.columns} array, {config.sram_bytes >> 10} KiB "
            f"SRAM, {config.dma_bytes_per_cycle} bytes per cycle from DRAM",
            f"{'layer':{width}} {'cycles':>12} {'share':>6} {'array':>6} {'KiB moved':>10} "
            f"{'array bound':>12} {'DMA bound':>10} {'vector busy':>12} {'microjoule':>11}",
        ]
        lines += [
            f"{row.name:{width}} {row.cycles:12,} {row.cycles / max(1, total.cycles):6.1%} "
            f"{row.utilisation:6.1%} {row.moved / 1024:10,.1f} {row.array_bound:12,.0f} "
            f"{row.moved / config.dma_bytes_per_cycle:10,.0f} {row.counters['vector_cycles']:12,} "
            f"{sum(row.energy.values()) / 1e6:11,.2f}"
            for row in (*self.layers, total)
        ]
        if any(row.utilisation > 1 for row in self.layers):
            note = "the layer works while cycles are counted for another one"
            lines.append(f"array above 100%: {note}; each cycle is counted once")
        energy = ", ".join(f"{part} {value / 1e6:,.2f}" for part, value in total.energy.items())
        lines += [
            f"lower bounds: array {bounds['array']:,.0f}, DMA {bounds['dma']:,.0f} cycles; "
            f"{total.cycles / max(1.0, *bounds.values()):.2f} times the larger one",
            f"{total.cycles / config.clock_mhz / 1e3:.3f} ms at {config.clock_mhz} MHz; energy: "
            f"{energy} microjoule, after {SOURCE}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Report:
    """The cost of a module's regions: one table for each."""

    regions: tuple[Table, ...]

    @property
    def layers(self) -> tuple[Row, ...]:
        """The layers of all regions."""
        return tuple(row for table in self.regions for row in table.layers)

    @property
    def cycles(self) -> int:
        """Cycles of all regions, run sequentially."""
        return sum(table.total.cycles for table in self.regions)

    @property
    def energy(self) -> dict[str, float]:
        """Picojoule of all regions, by part; empty if there are none."""
        each = [table.total.energy for table in self.regions]
        return {part: sum(one[part] for one in each) for part in (each[0] if each else ())}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.regions)) or "nothing runs on the accelerator"


def report(of: tvm.IRModule | Program) -> Report:
    """Count the cost of a partitioned module, or of one compiled region, on the accelerator.

    Raises `tvmlab.errors.InputError` if `of` is neither a module nor a `Program`, and
    `tvmlab.errors.ToolchainError` if the simulator cannot be built.
    """
    if not isinstance(of, (Program, tvm.IRModule)):
        what = f"report takes a partitioned module or a Program, not {type(of).__name__}"
        raise InputError(what, where="npu.report")
    if isinstance(of, Program):
        return Report((_table("program", of, []),))
    tables = []
    for name, function in regions(of).items():
        config, region = reading.config_of(function), reading.region(function)
        plan = plan_memory(region, config)
        tables.append(_table(name, compile_region(region, config, plan), plan.layers))
    return Report(tuple(tables))


def _table(name: str, program: Program, plans: Sequence[LayerPlan | None]) -> Table:
    counted, config = simulator.count(program.to_bytes()), program.config
    # The copies at the end of a program belong to no layer of the region.
    cuts = [one.tiling if one else None for one, _ in zip_longest(plans, counted)]
    layers = zip(program.layers, counted, cuts, strict=True)
    found = (Row(layer, config, counters, cut) for layer, counters, cut in layers)
    rows = tuple(row for row in found if row.counters["instructions"])
    total = {name: sum(row.counters[name] for row in rows) for name in simulator.COUNTERS}
    return Table(name, config, rows, Row("total", config, total), _needed(program))


def _needed(program: Program) -> int:
    touched = {
        number: np.zeros(tensor.nbytes, np.bool_)
        for number, tensor in enumerate(program.tensors)
        if tensor.kind != Kind.SCRATCH
    }
    for one in program.instructions:
        if isinstance(one, (Load, Store)) and one.tensor in touched:
            counts = (one.count0, one.count1, one.count2, one.count3, one.element)
            strides = (one.dram0, one.dram1, one.dram2, one.dram3, 1)
            part = touched[one.tensor][one.offset :]
            np.lib.stride_tricks.as_strided(part, counts, strides)[...] = True
    return sum(int(marks.sum()) for marks in touched.values())
