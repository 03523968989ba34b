"""Many small functions compiled as one library, so that a test can afford hundreds of them."""

from __future__ import annotations

import tvm
from tvm import relax

# Nobody times these: optimized, they would compile four times as long.
TARGET = {"kind": "llvm", "opt-level": 0}


def compiled(mods, folder):
    """Compile the `main` of several modules; give a function of arrays for each.

    The library is written to a file and read again: its object code is made at the target's
    optimization level, which code that is compiled in memory is not.
    """
    functions = {
        f"main_{i}": mod["main"].with_attr("global_symbol", f"main_{i}")
        for i, mod in enumerate(mods)
    }
    target = tvm.target.Target(TARGET)
    with target:
        mod = tvm.ir.transform.Sequential(
            [
                relax.transform.LegalizeOps(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(tvm.IRModule(functions))
    path = folder / f"{id(mods)}.so"
    tvm.compile(mod, target).export_library(str(path))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())

    def call(name):
        def function(*arrays):
            return machine[name](*map(tvm.runtime.tensor, arrays)).numpy()

        return function

    return [call(name) for name in functions]
