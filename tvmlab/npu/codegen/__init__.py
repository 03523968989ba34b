"""The door through which Relax calls this code generator: `relax.ext.tvmlab_npu`.

`relax.transform.RunCodegen` collects the functions that partitioning left for the accelerator and
hands them over; the code generator returns runtime modules that take their place.
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
        For the machine of its attribute ``npu.config``, or the default one.
    """
    return compile_region(reading.region(function), reading.config_of(function))


def codegen(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[str, Any]
) -> list[tvm.runtime.Module]:
    """Compile the functions of a module that are for the accelerator.

    Parameters
    ----------
    functions : sequence of relax.Function
        With a ``global_symbol`` each.
    options, constants : mapping
        RunCodegen's; not used, because constants lie in the functions.

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
