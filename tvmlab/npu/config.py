"""The machine's sizes, shared by partitioning, code generation and the timing model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from ..errors import InputError

#: The machine's name in function attributes, and before the dot in names of composite functions.
COMPILER = "tvmlab_npu"


@dataclass(frozen=True)
class Config:
    """The sizes of an accelerator; raises `tvmlab.errors.InputError` for a size out of range.

    Attributes
    ----------
    rows, columns, lanes : int
        The array multiplies `rows` input channels by `columns` output channels per cycle, and the
        vector unit computes `lanes` numbers.
    sram_bytes, accumulators : int
        On-chip memory for data, weights and tables; separate memory for int32 sums.
    dma_bytes_per_cycle, dma_burst_bytes : int
        Bytes between DRAM and SRAM per cycle, loads and stores together; DRAM is read and written
        in whole bursts, so a shorter run costs as much as a burst.
    dma_latency, vector_latency : int
        Latency of a transfer's first byte and of a vector instruction's first result, in cycles.
    clock_mhz : int
        Clock frequency in MHz.
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
        """Read the output of `to_json`; `tvmlab.errors.InputError` for any other text."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InputError(f"this is not a configuration: {error}", where="npu.Config") from error


#: The simulator allocates memory of these sizes, so they limit what a damaged file can request.
LIMITS = {"rows": 256, "columns": 256, "lanes": 1024}
LIMITS |= {"sram_bytes": 64 << 20, "accumulators": 16 << 20}


def machine(config: Config | None, where: str) -> Config:
    """Check a public function's argument `config`; return the default machine for None."""
    if config is None:
        return Config()
    if not isinstance(config, Config):
        fix = "pass the sizes by name: npu.Config(sram_bytes=128 << 10)"
        what = f"config is of class {type(config).__name__}, not npu.Config"
        raise InputError(what, where=where, fix=fix)
    return config
