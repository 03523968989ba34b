"""Running partitioned modules: regions in the simulator, the rest in NumPy."""

from __future__ import annotations

from functools import partial

import helpers_qnn_run
import numpy as np
import tvm
from tvm import relax

from tvmlab.npu import Config, simulator
from tvmlab.npu.lower import compile_region
from tvmlab.npu.reading import region

Array = np.ndarray


def regions(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """List the functions that are the accelerator's."""
    return {
        var.name_hint: function
        for var, function in mod.functions_items()
        if isinstance(function, relax.Function)
        and function.attrs
        and function.attrs.get("Codegen") == "tvmlab_npu"
    }


def run(mod: tvm.IRModule, *inputs: Array) -> Array | tuple[Array, ...]:
    """Run a partitioned module."""
    functions = {name: partial(_call, one) for name, one in regions(mod).items()}
    return helpers_qnn_run.run(mod, *inputs, functions=functions)[0]


def _call(function: relax.Function, *inputs: Array) -> Array | tuple[Array, ...]:
    config = Config.from_json(str(function.attrs["npu.config"]))
    program = compile_region(region(function, config), config)
    found = simulator.simulate(program.to_bytes(), inputs)
    return found[0] if len(found) == 1 else tuple(found)
