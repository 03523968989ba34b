"""Where the cycles go: a table by layer, and what the machine could not do faster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import tvm

from ..errors import InputError
from . import reading, simulator
from .codegen import regions
from .codegen.lower import compile_region
from .codegen.memory import plan_memory
from .codegen.tiling import Tiling
from .config import Config
from .energy import SOURCE, picojoules
from .isa import Load, Store
from .program import Kind, Program

__all__ = ["Report", "Row", "Table", "report"]


@dataclass(frozen=True)
class Row:
    """What a layer costs, or several layers together.

    Attributes
    ----------
    name : str
        The layer's.
    config : Config
        The machine.
    counters : dict of str to int
        As `tvmlab.npu.simulator.count` gives them.
    tiling : Tiling or None
        How the layer is cut, where that is known.
    """

    name: str
    config: Config = field(repr=False)
    counters: dict[str, int]
    tiling: Tiling | None = None

    @property
    def cycles(self) -> int:
        """Cycles, each counted for one layer."""
        return self.counters["cycles"]

    @property
    def moved(self) -> int:
        """Bytes loaded and stored."""
        return self.counters["loaded_bytes"] + self.counters["stored_bytes"]

    @property
    def array_floor(self) -> float:
        """Cycles that the products take where the whole array is always busy."""
        return self.counters["array_macs"] / (self.config.rows * self.config.columns)

    @property
    def dma_pace(self) -> float:
        """Cycles that the bytes take where the DMA engine is always busy, without latency."""
        return self.moved / self.config.dma_bytes_per_cycle

    @property
    def utilisation(self) -> float:
        """Share of the array's products that are made in the row's cycles, 0 to 1.

        Above 1 where a layer works while another one's cycles are counted.
        """
        return self.array_floor / self.cycles if self.cycles else 0.0

    @property
    def energy(self) -> dict[str, float]:
        """Picojoule by part (`tvmlab.npu.energy.picojoules`)."""
        return picojoules(self.counters, self.config)

    @property
    def milliseconds(self) -> float:
        """Time at the machine's clock."""
        return self.cycles / self.config.clock_mhz / 1e3


@dataclass(frozen=True)
class Table:
    """What a region costs.

    Attributes
    ----------
    name : str
        The region's.
    config : Config
        The machine.
    layers : tuple of Row
        In the order of the program. Cycles of a layer may be fewer than its floor, where it works
        while another layer's cycles are counted.
    total : Row
        All of them together; never below the floors.
    needed : int
        Bytes of inputs, constants and outputs, each counted once however often it is moved.
    """

    name: str
    config: Config
    layers: tuple[Row, ...]
    total: Row
    needed: int

    @property
    def floors(self) -> dict[str, float]:
        """Cycles that no other way to cut the layers goes below.

        ``"array"``: the products, with the whole array always busy. ``"dma"``: the bytes that have
        to be moved once, with the DMA engine always busy.
        """
        paced = self.needed / self.config.dma_bytes_per_cycle
        return {"array": self.total.array_floor, "dma": paced}

    def __str__(self) -> str:
        """Write the table as text."""
        config, total = self.config, self.total
        width = max(len(row.name) for row in (*self.layers, total))
        lines = [
            f"{self.name}: {config.rows}x{config.columns} array, {config.sram_bytes >> 10} KiB "
            f"SRAM, {config.dma_bytes_per_cycle} bytes a cycle from DRAM",
            f"{'layer':{width}} {'cycles':>12} {'share':>6} {'array':>6} {'KiB moved':>10} "
            f"{'array floor':>12} {'DMA pace':>10} {'vector busy':>12} {'microjoule':>11}",
        ]
        for row in (*self.layers, total):
            lines.append(
                f"{row.name:{width}} {row.cycles:12,} {row.cycles / max(1, total.cycles):6.1%} "
                f"{row.utilisation:6.1%} {row.moved / 1024:10,.1f} {row.array_floor:12,.0f} "
                f"{row.dma_pace:10,.0f} {row.counters['vector_cycles']:12,} "
                f"{sum(row.energy.values()) / 1e6:11,.2f}"
            )
        if any(row.utilisation > 1 for row in self.layers):
            lines.append(
                "array above 100%: the layer works while cycles are counted for another one; each "
                "cycle is counted once"
            )
        lines.append(f"floors: {_said(self.floors)} cycles; {_over(total.cycles, self.floors)}")
        lines.append(
            f"{total.milliseconds:.3f} ms at {config.clock_mhz} MHz; energy: "
            + ", ".join(f"{part} {value / 1e6:,.2f}" for part, value in total.energy.items())
            + f" microjoule, after {SOURCE}"
        )
        return "\n".join(lines)


def _said(floors: dict[str, float]) -> str:
    return f"array {floors['array']:,.0f}, DMA {floors['dma']:,.0f}"


def _over(cycles: int, floors: dict[str, float]) -> str:
    return f"{cycles / max(1.0, *floors.values()):.2f} times the larger one"


@dataclass(frozen=True)
class Report:
    """What the regions of a module cost.

    Attributes
    ----------
    regions : tuple of Table
        One for each.
    """

    regions: tuple[Table, ...]

    @property
    def layers(self) -> tuple[Row, ...]:
        """The layers of all regions."""
        return tuple(row for table in self.regions for row in table.layers)

    @property
    def cycles(self) -> int:
        """Cycles of all regions, one after the other."""
        return sum(table.total.cycles for table in self.regions)

    @property
    def floors(self) -> dict[str, float]:
        """The regions' floors, added up (`Table.floors`)."""
        each = [table.floors for table in self.regions]
        return {name: sum(one[name] for one in each) for name in ("array", "dma")}

    @property
    def energy(self) -> dict[str, float]:
        """Picojoule of all regions, by part."""
        parts: dict[str, float] = {}
        for table in self.regions:
            for part, value in table.total.energy.items():
                parts[part] = parts.get(part, 0.0) + value
        return parts

    def __str__(self) -> str:
        """Write the tables as text."""
        return "\n\n".join(map(str, self.regions)) or "nothing runs on the accelerator"


def report(of: tvm.IRModule | Program) -> Report:
    """Count what a partitioned module costs on the accelerator.

    Parameters
    ----------
    of : tvm.IRModule or Program
        What `tvmlab.npu.partition` gave, or one compiled region.

    Returns
    -------
    Report
        A table for each region. No data are needed: what a program costs does not depend on them.

    Raises
    ------
    tvmlab.errors.InputError
        If it is something else.
    tvmlab.errors.ToolchainError
        If the simulator, which counts, cannot be built.
    """
    if not isinstance(of, (Program, tvm.IRModule)):
        raise InputError(
            f"report takes a partitioned module or a Program, not {type(of).__name__}",
            where="npu.report",
        )
    if isinstance(of, Program):
        return Report((_table("program", of, [None] * len(of.layers)),))
    tables = []
    for name, function in regions(of).items():
        config = reading.config_of(function)
        region = reading.region(function)
        plan = plan_memory(region, config)
        tilings = [one.tiling if one else None for one in plan.layers]
        tables.append(_table(name, compile_region(region, config, plan), tilings))
    return Report(tuple(tables))


def _table(name: str, program: Program, tilings: list[Tiling | None]) -> Table:
    counted = simulator.count(program.to_bytes())
    # Copies that end a program belong to no layer of the region.
    tilings = tilings + [None] * (len(counted) - len(tilings))
    rows = tuple(
        Row(layer, program.config, counters, tiling)
        for layer, counters, tiling in zip(program.layers, counted, tilings, strict=True)
        if counters["instructions"]
    )
    names = simulator.load().counter_names().split()
    total = {name: sum(row.counters[name] for row in rows) for name in names}
    whole = Row("total", program.config, total)
    return Table(name, program.config, rows, whole, _needed(program))


def _needed(program: Program) -> int:
    """Count the bytes of inputs, constants and outputs that a program touches."""
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
