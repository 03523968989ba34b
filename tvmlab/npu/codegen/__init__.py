"""The code generator that `relax.transform.RunCodegen` calls: `relax.ext.tvmlab_npu`."""

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
    """Compile a region of a partitioned module for the machine of its attribute ``npu.config``."""
    return compile_region(reading.region(function), reading.config_of(function))


def codegen(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[str, Any]
) -> list[tvm.runtime.Module]:
    """Make a runtime module of each accelerator function, named after its global symbol."""
    del options, constants  # the functions contain their constants
    return [
        simulator.module(str(function.attrs["global_symbol"]), program(function).to_bytes())
        for function in functions
    ]


tvm.register_global_func("relax.ext.tvmlab_npu", codegen, override=True)
