"""An example accelerator that computes: partition a module, generate code, simulate, account.

The machine on one page
=======================

::

      DRAM: inputs, outputs, constants, scratch
        |  ^
        v  |  DMA: load and store, 16 bytes a cycle, in bursts of 32, 64 cycles to the first byte
      +-----------------------------------------------------------+
      |  SRAM, 256 KiB: tiles of images, weights, tables          |
      +-----------------------------------------------------------+
        | 16 channels of a pixel   ^ |
        v                          | v
      ARRAY 16 x 16 ----------> VECTOR unit, 16 lanes
      int8 and uint8 data,      requantize, add, pool, sum,
      int8 weights              depthwise convolutions
        |      int32               ^
        +--> accumulators, 16 Ki --+

A convolution is cut into tiles. Each is *loaded* from DRAM to SRAM, *multiplied* on the array,
which adds 16 input channels into 16 output channels in a cycle, *requantized* from the
accumulators back to 8 bits in SRAM by the vector unit, and *stored*. What the next layer needs
may stay in SRAM.

**Sizes** are fields of `Config`, **instructions** the nine classes of `tvmlab.npu.isa`.

**Time.** DMA, array and vector unit work at once, each in its own order; Sync waits for all. What
lies between two syncs, a phase, takes as long as its busiest unit, and a cycle for the sync. In a
phase no unit may read or write what another writes. A transfer takes its latency and its bytes,
rounded up to bursts; a block of the array takes a cycle for each output pixel, or the time that
the next block's weights take to shift in; the vector unit takes its lanes' numbers in a cycle.
The numbers do not depend on the data.

**Arithmetic** is `tvmlab.qnn.arithmetic`'s, bit for bit. The machine knows no zero points: they
are folded into biases and padding values before (`tvmlab.npu.layers`).

**What is simplified.** There is no instruction fetch, no bank conflict, no refresh and no error;
DRAM has one latency, and a run is charged as if it began with a burst; weights go through the same
port as data; energy is an estimate of some parts (`tvmlab.npu.energy`).

**Ancestors**, one idea of each: Gemmini (DAC 2021) a systolic array beside a scratchpad and
accumulators; the TPU (ISCA 2017) weights that stay while data stream; VTA (IEEE Micro 2019) load,
compute and store as units that overlap; Arm's Ethos-U55 networks compiled offline to commands.

**To use it**: `partition` cuts a module by Relay's four passes, `coverage` says what was taken and
why the rest was not, `report` what it costs, and ``tvmlab.compile(mod, "npu, llvm")`` does all at
once for the default machine; for another one, `partition` with its `Config` first.
"""

from . import codegen
from .config import Config
from .coverage import Coverage, coverage
from .partition import partition, relax_patterns
from .patterns import Check, pattern_table
from .program import disassemble
from .report import Report, report

__all__ = [
    "Check",
    "Config",
    "Coverage",
    "Report",
    "codegen",
    "coverage",
    "disassemble",
    "partition",
    "pattern_table",
    "relax_patterns",
    "report",
]
