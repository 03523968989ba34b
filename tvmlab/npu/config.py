"""The machine's sizes, which partitioning, code generation and timing follow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from ..errors import InputError

#: The machine's name for passes: in functions' attributes, and before the dot of composites' names.
COMPILER = "tvmlab_npu"


@dataclass(frozen=True)
class Config:
    """The sizes of an accelerator; `tvmlab.errors.InputError` for a size that is out of range.

    Attributes
    ----------
    rows, columns, lanes : int
        The array multiplies `rows` input channels by `columns` output channels per cycle, and the
        vector unit computes `lanes` numbers.
    sram_bytes, accumulators : int
        On-chip memory of data, weights and tables, and sums of int32 in a memory of their own.
    dma_bytes_per_cycle, dma_burst_bytes : int
        Bytes between DRAM and SRAM per cycle, loads and stores together; DRAM is read and written
        in pieces of a burst, so that a shorter run costs as much.
    dma_latency, vector_latency : int
        Cycles until a transfer's first byte, and until a vector instruction's first result.
    clock_mhz : int
        Millions of cycles per second.
    """

    rows: int = 16
    columns: int = 16
    lanes: int = 16
    sram_bytes: int = 256 << 10
    accumulators: int = 16 << 10
    dma_bytes_per_cycle: int = 16
    dma_burst_bytes: int = 32
    dma_latency: int = 64
    vector_latency: int = 8
    clock_mhz: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value, most = getattr(self, field.name), LIMITS.get(field.name, 1 << 16)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                what = f"{field.name} is {value!r}; it is an int from 1 to {most}"
                raise InputError(what, where="npu.Config")

    def to_json(self) -> str:
        """Write the sizes as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Read what `to_json` wrote; `tvmlab.errors.InputError` if the text is something else."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InputError(f"this is no configuration: {error}", where="npu.Config") from error


#: The simulator allocates these, so a damaged file must not ask for more.
LIMITS = {"rows": 256, "columns": 256, "lanes": 1024}
LIMITS |= {"sram_bytes": 64 << 20, "accumulators": 16 << 20}


def machine(config: Config | None, where: str) -> Config:
    """Return a public function's argument `config`, checked, or the default machine."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        fix = "give the sizes by name: npu.Config(sram_bytes=128 << 10)"
        what = f"config is of class {type(config).__name__}, not npu.Config"
        raise InputError(what, where=where, fix=fix)
    return config
