"""An example accelerator that computes: partition a module, generate code, simulate, account.

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

A convolution is cut into tiles. Each tile is *loaded* from DRAM to SRAM, *multiplied* on the array,
which adds 16 input channels into 16 output channels per cycle, *requantized* from the accumulators
to 8 bits in SRAM by the vector unit, and *stored*, unless the next layer reads it from SRAM. Sizes
are fields of `Config`; the nine instructions are classes of `tvmlab.npu.isa`.

**Time.** DMA, array and vector unit work at once, each in its own order; `Sync` waits for all. A
phase, the work between two syncs, takes as long as its busiest unit, and a cycle for the sync. In a
phase no unit may read or write bytes that another unit writes. A transfer takes its latency and its
bytes, rounded up to bursts; a block of the array takes a cycle for each output pixel, or the time
to shift in the next block's weights; the vector unit computes a number per lane and cycle. There is
no instruction fetch, bank conflict or refresh; DRAM has one latency.

**Arithmetic** is that of `tvmlab.qnn.arithmetic`, bit for bit. Gemmini (DAC 2021), the TPU (ISCA
2017), VTA (IEEE Micro 2019) and Arm's Ethos-U55 are the machine's models.

**To use it**, `partition` cuts a module, `coverage` says why the rest was left, and `report` counts
the cost. ``tvmlab.compile(mod, "npu, llvm")`` partitions for the default machine by itself.
"""

from . import codegen
from .config import Config
from .coverage import Coverage, coverage
from .partition import Check, partition, pattern_table, relax_patterns
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
