"""Running partitioned modules: regions in the simulator, the rest in NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np
import tvm
from tvm import relax

from tests.qnn import run as qnn_run
from tvmlab.npu import codegen, simulator

Array = np.ndarray


def run(mod: tvm.IRModule, *inputs: Array) -> Array | tuple[Array, ...]:
    """Run a partitioned module."""
    functions = {name: partial(_call, one) for name, one in codegen.regions(mod).items()}
    return qnn_run.run(mod, *inputs, functions=functions)[0]


def _call(function: relax.Function, *inputs: Array) -> Array | tuple[Array, ...]:
    found = simulator.simulate(codegen.program(function).to_bytes(), inputs)
    return found[0] if len(found) == 1 else tuple(found)
