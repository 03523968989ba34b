"""The door to Relax: a function for the accelerator becomes a runtime module."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.npu.test_report import module
from tvmlab.npu import Config, disassemble, report
from tvmlab.npu.codegen import program, regions
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Program


@pytest.mark.parametrize("kib", [8, 256])
def test_run_codegen_takes_it(kib: int) -> None:
    """Through upstream's own passes and virtual machine, to the same bits as on the CPU."""
    data = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 16)).astype("int8")
    cut = partition(module(), Config(sram_bytes=kib << 10))
    found = []
    for mod in (module(), relax.transform.RunCodegen()(cut)):
        built = tvm.compile(relax.transform.LegalizeOps()(mod), "llvm")
        machine = relax.VirtualMachine(built, tvm.cpu())
        found.append(machine["main"](tvm.runtime.tensor(data)).numpy())
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0])) > 50


def test_a_region_is_compiled_for_the_machine_that_it_was_cut_for() -> None:
    config = Config(sram_bytes=16 << 10, columns=8)
    (function,) = regions(partition(module(), config)).values()
    found = program(function)
    assert found.config == config
    assert Program.from_bytes(found.to_bytes()) == found
    assert "16x8 array" in disassemble(found)
    assert report(found).cycles == report(partition(module(), config)).cycles


def test_no_region_where_nothing_was_cut() -> None:
    assert regions(module()) == {}
