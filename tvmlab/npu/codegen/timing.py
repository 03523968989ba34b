"""The cycles that one instruction takes on its unit."""

from __future__ import annotations

from .. import isa
from ..config import Config
from ..isa import Instruction

__all__ = ["cycles", "moving"]


def cycles(one: Instruction, config: Config) -> int:
    """Give the cycles of an instruction.

    Parameters
    ----------
    one : Instruction
        Any but `Sync`.
    config : Config
        The machine.
    """
    match one:
        case isa.Load() | isa.Store():
            return moving(one, config)
        case isa.Matmul():
            inputs, outputs = (
                -(-one.channels // config.rows),
                -(-one.out_channels // config.columns),
            )
            blocks = one.kernel_h * one.kernel_w * inputs * outputs
            pixels = max(one.out_rows * one.out_cols, config.rows)
            return config.rows + config.columns + blocks * pixels
        case isa.Depthwise():
            passes = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols
        case isa.Requantize():
            passes = one.rows * one.cols
        case isa.Add():
            passes = one.rows * one.cols * (1 if one.rhs_address < 0 else 2)
        case isa.Pool():
            passes = one.kernel_h * one.kernel_w * one.out_rows * one.out_cols
        case isa.Sum():
            passes = one.rows * one.cols
        case _:
            return 1
    return config.vector_latency + passes * -(-one.channels // config.lanes)


def moving(one: isa.Load | isa.Store, config: Config) -> int:
    """Give the cycles of a transfer: runs that lie side by side in DRAM, in whole bursts."""
    run, runs = one.element, 1
    counts = one.count3, one.count2, one.count1, one.count0
    strides = one.dram3, one.dram2, one.dram1, one.dram0
    joined = True
    for count, stride in zip(counts, strides, strict=True):
        if count == 1:
            continue
        joined = joined and stride == run
        if joined:
            run *= count
        else:
            runs *= count
    burst = config.dma_burst_bytes
    bus = runs * -(-run // burst) * burst
    return config.dma_latency + -(-bus // config.dma_bytes_per_cycle)
