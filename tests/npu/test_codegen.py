"""Code generation: how layers are cut and placed, and the door to Relax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm.relax import op

from tests.npu import graphs
from tests.npu.machine_code import Bytes, convolution, regions_of, simulated
from tests.oracles.models import as_tuple
from tests.qnn.graphs import integers
from tests.qnn.run import run
from tvmlab import npu
from tvmlab.npu import Config, simulator
from tvmlab.npu.isa import Matmul
from tvmlab.npu.program import Kind, Program


def compiled(mod: ir.IRModule, config: Config | None = None) -> Program:
    """Compile a module's one region."""
    (function,) = regions_of(npu.partition(mod, config))
    return npu.codegen.program(function)


def check(mod: ir.IRModule, config: Config | None = None) -> Program:
    """Compile and run; compare with the reference."""
    kind = mod["main"].params[0].ty
    data = integers([int(size) for size in kind.shape], str(kind.dtype))
    found, wanted = simulated(npu.partition(mod, config), data), run(mod, data)[0]
    for one, other in zip(as_tuple(found), as_tuple(wanted), strict=True):
        np.testing.assert_array_equal(one, other)
    return compiled(mod, config)


@pytest.mark.parametrize(("kib", "on_chip"), [(32, True), (2, False)])
def test_values_stay_on_chip_where_they_fit(kib: int, on_chip: bool) -> None:
    made = check(graphs.chain(6), Config(sram_bytes=kib << 10))
    assert on_chip == all(one.kind is not Kind.SCRATCH for one in made.tensors)


def test_results_that_are_inputs_or_twice_the_same() -> None:
    for first in (True, False):
        net = Bytes()
        made = net.conv(net.inputs[0]) if first else net.inputs[0]
        again = net.emit(op.reshape(made, (1, 4, 3, 3)))
        program = check(net.module(*[made] * first, again), Config(sram_bytes=1000))
        assert program.layers[-1] == "copy"


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_window_wholly_in_the_padding(layout: str) -> None:
    check(convolution((1, 2, 3, 4), 5, (2, 2), (5, 4, 6, 7), layout))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("pads", [(3, 3, 3, 3), (0, 0, 0, 0), (1, 9, 2, 8)])
def test_lines_of_taps_are_folded_where_channels_are_few(layout: str, pads: Any) -> None:
    how = {"strides": (2, 3), "dilation": (2, 1)}
    mod = convolution((2, 30, 23, 3), 20, (5, 7), pads, layout, **how)
    made = check(mod, Config(sram_bytes=4 << 10))
    products = [one for one in made.instructions if isinstance(one, Matmul)]
    assert {(one.kernel_w, one.stride_w, one.channels) for one in products} == {(1, 1, 21)}


def test_a_region_is_compiled_for_the_machine_that_it_was_cut_for() -> None:
    config = Config(sram_bytes=16 << 10, columns=8)
    found = compiled(convolution(), config)
    assert found.config == config
    assert Program.from_bytes(found.to_bytes()) == found
    cut = npu.partition(convolution(), config)
    assert npu.report(found).cycles == npu.report(cut).cycles


def test_the_reason_names_what_is_needed_and_what_there_is() -> None:
    mod = convolution((1, 32, 32, 8), 8, (16, 16))
    assert npu.coverage(npu.partition(mod, Config(sram_bytes=64 << 10))).macs_share == 1
    # One channel of the window, its weights for 16 columns, tables of 8 channels, 8 results.
    need = 16 * 16 + 16 * 16 * 16 + 8 * 4 + 8 + 8
    reason = f"its smallest tile needs {need:,} bytes of SRAM; there are 3,000"
    assert npu.coverage(mod, Config(sram_bytes=3000)).refused[0].reason == reason
    assert compiled(mod, Config(sram_bytes=need)).instructions
    assert npu.coverage(npu.partition(mod, Config(sram_bytes=need - 8))).regions == 0


@pytest.mark.parametrize("side", [7, 28])
def test_the_estimate_is_near_what_the_machine_counts_and_units_overlap(side: int) -> None:
    (row,) = npu.report(npu.partition(convolution((1, side, side, 48), 80))).layers
    assert row.tiling is not None
    assert 0.8 < row.cycles / row.tiling.cycles < 1.25
    program = compiled(convolution((1, 32, 32, 32), 64), Config(sram_bytes=32 << 10))
    counted = simulator.count(program.to_bytes())[0]
    units = [counted[f"{unit}_cycles"] for unit in ("dma", "array", "vector")]
    assert counted["cycles"] < max(units) + 0.3 * (sum(units) - max(units))
