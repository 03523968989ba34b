"""The kernels that networks are compiled to for a CPU: the structure of each TIR function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi

from tests.contract.networks import FLOAT, INT8, case, network
from tvmlab.compiler import simplify
from tvmlab.schedule import schedule_passes

X86, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu"
TARGETS = {
    name: {"kind": "llvm", "mtriple": triple, "mcpu": name, "num-cores": 4}
    for name, triple in (("x86-64-v3", X86), ("cascadelake", X86), ("neoverse-n1", ARM))
}
#: What is compiled for each target; the others for one.
EVERYWHERE = ("digits", "digits int8 QDQ", "resnet8 int8")
CASES = [
    case(name, mcpu)
    for name in FLOAT | INT8
    for mcpu in TARGETS
    if name in EVERYWHERE or mcpu == ("x86-64-v3" if name in FLOAT else "cascadelake")
]


@pytest.mark.parametrize(("name", "mcpu"), CASES)
def test_kernels_are_the_same(name: str, mcpu: str, kept: Callable[..., Any]) -> None:
    target = tvm.target.Target(TARGETS[mcpu])
    with target:
        mod = schedule_passes(target)(simplify(network(name)))
    found = {
        var.name_hint: f"{tvm_ffi.structural_hash(function) % 2**64:016x}"
        for var, function in mod.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    assert len(found) > 5
    assert found == kept("kernels", f"{name}, {mcpu}", found)
