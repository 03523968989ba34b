"""The accelerator's simulator: executes a program bit for bit, and counts its cost.

The simulator is written in C++ and built with CMake on first use. When it loads a program, it
checks that no instruction leaves a memory or reads unwritten bytes, and that no units race.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..support import toolchain
from .program import Kind, Program

if TYPE_CHECKING:
    import tvm

#: The folder of the C++ sources and their CMakeLists.txt.
SOURCES = Path(__file__).resolve().parent.parent / "native" / "npu"
#: The counters that `count` returns for each layer.
COUNTERS = ["cycles", "dma_cycles", "array_cycles", "vector_cycles"]
COUNTERS += ["loaded_bytes", "stored_bytes", "bus_bytes", "array_macs", "vector_macs"]
COUNTERS += ["sram_read_bytes", "sram_written_bytes", "instructions"]

Array = npt.NDArray[np.generic]


def library() -> Path:
    """Build the simulator once; `tvmlab.errors.ToolchainError` if that fails."""
    return toolchain.build_with_cmake(SOURCES, name="npu")


@cache
def load() -> Any:
    """Build and load the simulator, so that saved modules of kind ``tvmlab_npu`` can be loaded."""
    return toolchain.load_extension(library())


def module(symbol: str, program: bytes) -> tvm.runtime.Module:
    """Make a runtime module from a serialized program (`tvmlab.npu.program.Program.to_bytes`).

    The module has the kind ``tvmlab_npu`` and one function, `symbol`, which takes the program's
    inputs and outputs in host memory and fills the outputs. Several threads can call it at once.

    Raises
    ------
    tvmlab.errors.SimulationError
        The bytes are not a program, or an instruction is invalid. The function itself raises it if
        a shift in a table is out of range, and `tvmlab.errors.InputError` for wrong tensors.
    """
    return load().make_module(symbol, bytes(program))


def described(made: tvm.runtime.Module) -> tuple[str, bytes]:
    """Return the name of a runtime module's function, and the program's bytes."""
    symbol, program = load().described(made)
    return str(symbol), bytes(program)


def count(program: bytes) -> list[dict[str, int]]:
    """Count the cost of each layer of a program, by `COUNTERS`; errors are those of `module`.

    ``cycles`` are the layer's share of the program's cycles, ``bus_bytes`` the bytes loaded and
    stored in whole bursts; ``array_macs`` and ``vector_macs`` are multiply-accumulates.
    """
    flat, size = list(map(int, load().count(bytes(program)))), len(COUNTERS)
    rows = (flat[at : at + size] for at in range(0, len(flat), size))
    return [dict(zip(COUNTERS, row, strict=True)) for row in rows]


def cycles(program: Program) -> list[int]:
    """Return the cycles that each instruction takes on its unit, 0 for `Sync`."""
    return [int(number) for number in load().cycles(program.to_bytes())]


def simulate(program: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Execute a program with arrays, and return its outputs; errors are those of `module`."""
    loaded = module("program", program)
    tensors = Program.from_bytes(program).tensors
    needed = sum(tensor.kind == Kind.INPUT for tensor in tensors)
    if len(inputs) != needed:
        what = f"the program takes {needed} inputs, not {len(inputs)}"
        raise InputError(what, where="npu.simulate")
    # DLPack does not export read-only arrays.
    given = [np.require(one, requirements=["C", "W"]) for one in inputs]
    outputs: list[Array] = [
        np.empty(one.shape, one.dtype.name) for one in tensors if one.kind == Kind.OUTPUT
    ]
    left, filled = iter(given), iter(outputs)
    sides = {Kind.INPUT: left, Kind.OUTPUT: filled}
    loaded["program"](*(next(sides[one.kind]) for one in tensors if one.kind in sides))
    return outputs
