"""Estimate a program's energy from its counters.

The constants are for 45 nm at 0.9 V (figure 1.1.9 of the `SOURCE`). They show which part dominates,
not the power of a current chip. The estimate counts 8-bit products and bytes at the memory ports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .config import Config

SOURCE = 'Horowitz, "Computing\'s energy problem", ISSCC 2014 (45 nm)'
#: A product of two 8-bit integers and an addition of 32 bits, in picojoule.
PRODUCT, ADDITION = 0.2, 0.1
#: An access of 8 bytes to an SRAM, in picojoule, by the SRAM's size in bytes.
SRAM = {8 << 10: 10.0, 32 << 10: 20.0, 1 << 20: 100.0}
#: An access of 8 bytes to DRAM, in picojoule: the lower end of 1.3 to 2.6 nanojoule.
DRAM = 1300.0


def picojoules(counters: Mapping[str, int], config: Config) -> dict[str, float]:
    """Estimate the energy by part; `counters` are those of `tvmlab.npu.simulator.count`."""
    sizes = [math.log2(size) for size in SRAM]
    access = float(np.interp(math.log2(config.sram_bytes), sizes, list(SRAM.values())))
    products = counters["array_macs"] + counters["vector_macs"]
    touched = counters["sram_read_bytes"] + counters["sram_written_bytes"]
    return {
        "arithmetic": products * (PRODUCT + ADDITION),
        "sram": touched / 8 * access,
        "dram": counters["bus_bytes"] / 8 * DRAM,
    }
