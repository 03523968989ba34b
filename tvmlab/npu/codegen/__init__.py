"""The door through which Relax calls this code generator: `relax.ext.tvmlab_npu`.

`relax.transform.RunCodegen` collects the functions that partitioning left for the accelerator and
hands them over; what comes back are runtime modules that stand for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from .. import reading, simulator
from ..program import Program
from ..reading import regions
from .lower import compile_region

__all__ = ["codegen", "program", "regions"]


def program(function: relax.Function) -> Program:
    """Compile one function for the accelerator.

    Parameters
    ----------
    function : relax.Function
        A region of a partitioned module.

    Returns
    -------
    Program
        For the machine that its attribute ``npu.config`` says, or the default one.
    """
    config = reading.config_of(function)
    return compile_region(reading.region(function, config), config)


def codegen(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[str, Any]
) -> list[tvm.runtime.Module]:
    """Compile the functions of a module that are for the accelerator.

    Parameters
    ----------
    functions : sequence of relax.Function
        With a ``global_symbol`` each.
    options, constants : mapping
        RunCodegen's; not used: constants lie in the functions.

    Returns
    -------
    list of tvm.runtime.Module
        One for each function, with a function of its name.
    """
    del options, constants
    return [
        simulator.module(str(function.attrs["global_symbol"]), program(function).to_bytes())
        for function in functions
    ]


tvm.register_global_func("relax.ext.tvmlab_npu", codegen, override=True)
