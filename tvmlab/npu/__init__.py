"""An example accelerator: partition a module, generate code, simulate it, count its cost.

::

      DRAM: inputs, outputs, constants, scratch
        |  ^
        v  |  DMA: load and store, 16 bytes per cycle, bursts of 32, 64 cycles latency
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

**Time.** The DMA engine, the array and the vector unit work in parallel, each in its own order;
`Sync` waits for all three. A phase is the work between two syncs. A phase takes as long as its
busiest unit, plus one cycle for the sync. Within a phase, a unit must not read or write bytes that
another unit writes. A transfer takes its latency plus its bytes, rounded up to bursts. A block of
the array takes one cycle per output pixel, or the time to shift in the next block's weights. The
vector unit computes one number per lane and cycle. Instruction fetch, bank conflicts and DRAM
refresh are not modelled; DRAM has one latency.

**Arithmetic** equals that of `tvmlab.qnn.arithmetic`, bit for bit. The machine is modelled on
Gemmini (DAC 2021), the TPU (ISCA 2017), VTA (IEEE Micro 2019) and Arm's Ethos-U55.

**To use it**, call `partition` to cut a module, `coverage` to list why operators stay on the CPU,
and `report` to count cycles. ``tvmlab.compile(mod, "npu, llvm")`` uses the default machine.
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
