"""The accelerator's simulator: executes a program bit for bit, and counts what it costs.

It is written in C++ (`tvmlab/native/npu`) and built with CMake on first use. A program is verified
when it is loaded: no field may lead out of a memory, no unit may read what nothing was written to,
and no two units may get in each other's way between two syncs. All of that follows from the
instructions alone; only the contents of tables of shifts are looked at while it runs.
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

Array = npt.NDArray[np.generic]


def library() -> Path:
    """Build the simulator, unless that was done before; return the shared library.

    Raises
    ------
    tvmlab.errors.ToolchainError
        A compiler, CMake or Ninja is missing, or building fails.
    """
    return toolchain.build_with_cmake(SOURCES, name="npu")


@cache
def load() -> Any:
    """Build and load the simulator, so that saved modules of kind ``tvmlab_npu`` can be loaded."""
    return toolchain.load_extension(library())


def module(symbol: str, program: bytes) -> tvm.runtime.Module:
    """Make a runtime module of what `tvmlab.npu.program.Program.to_bytes` gave.

    It is of kind ``tvmlab_npu`` and has one function, `symbol`, which takes the program's inputs,
    then its outputs, in the order of its table: tensors in host memory, of which it fills the
    outputs. Several threads may call it at once. The module can be exported with others in a
    library; a process that loads the library calls `load` first.

    Raises
    ------
    tvmlab.errors.SimulationError
        If the bytes are no program, or the machine refuses it: the error says which instruction,
        and why. The function raises it too, where a table's shift is out of range, and
        `tvmlab.errors.InputError` for tensors that do not fit the table.
    """
    return load().make_module(symbol, bytes(program))


def described(made: tvm.runtime.Module) -> tuple[str, bytes]:
    """Tell what `module` made a runtime module of: the name of its function, and the program."""
    symbol, program = load().described(made)
    return str(symbol), bytes(program)


def count(program: bytes) -> list[dict[str, int]]:
    """Count what a program costs, by its layers; no data are needed, and errors are `module`'s.

    For each layer: ``cycles`` (its share of the whole program's, so these add up), the units' own
    ``dma_cycles``, ``array_cycles`` and ``vector_cycles``, ``loaded_bytes``, ``stored_bytes``,
    ``bus_bytes`` (both, in whole bursts), ``array_macs``, ``vector_macs`` (multiply-accumulates),
    ``sram_read_bytes``, ``sram_written_bytes``, ``instructions``.
    """
    names = load().counter_names().split()
    flat = [int(number) for number in load().count(bytes(program))]
    rows = [flat[at : at + len(names)] for at in range(0, len(flat), len(names))]
    return [dict(zip(names, row, strict=True)) for row in rows]


def cycles(program: Program) -> list[int]:
    """Return the cycles that each instruction takes on its unit, 0 for `Sync`."""
    return [int(number) for number in load().cycles(program.to_bytes())]


def simulate(program: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Execute a program with arrays of its inputs' shapes and dtypes; return its outputs.

    Raises
    ------
    tvmlab.errors.SimulationError, tvmlab.errors.InputError
        As `module` and its function do.
    """
    loaded = module("program", program)
    tensors = Program.from_bytes(program).tensors
    needed = sum(tensor.kind == Kind.INPUT for tensor in tensors)
    if len(inputs) != needed:
        raise InputError(
            f"the program takes {needed} inputs, and got {len(inputs)}", where="npu.simulate"
        )
    # DLPack hands over no array that may not be written to.
    given = [np.require(one, requirements=["C", "W"]) for one in inputs]
    outputs: list[Array] = [
        np.empty(one.shape, one.dtype.name) for one in tensors if one.kind == Kind.OUTPUT
    ]
    left, filled = iter(given), iter(outputs)
    sides = {Kind.INPUT: left, Kind.OUTPUT: filled}
    loaded["program"](*(next(sides[one.kind]) for one in tensors if one.kind in sides))
    return outputs
