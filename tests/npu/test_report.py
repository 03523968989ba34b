"""Reports: floors that hold, sums that add up, energy from its sources."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from tvm import relax

from tests.npu.regions import Builder
from tests.npu.test_lower import CONFIGS, networks, residual
from tvmlab.npu import energy
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.tiling import fits
from tvmlab.npu.config import Config
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Kind
from tvmlab.npu.report import Row, Table, report
from tvmlab.qnn import op as qnn


@settings(max_examples=60, deadline=None)
@given(case=networks(), config=CONFIGS)
def test_cycles_are_never_below_a_floor(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    region = builder.region(*outputs)
    if any(fits(layer, region.values, config) for layer in region.layers):
        return
    found = report(compile_region(region, config))
    assert found.cycles >= max(found.floors.values())
    assert found.cycles == sum(row.cycles for row in found.layers)
    total = found.regions[0].total
    assert total.counters["bus_bytes"] >= total.moved
    assert 0 <= total.utilisation <= 1


def test_a_table() -> None:
    builder, out = residual(16)
    program = compile_region(builder.region(out), Config(sram_bytes=32 << 10))
    found = report(program)
    (table,) = found.regions
    assert [row.name for row in table.layers] == list(program.layers)
    macs = 16 * 16 * 9 * 16 * 16
    assert [row.counters["array_macs"] for row in table.layers] == [macs, macs, 0]
    assert found.floors["array"] == 2 * macs / 256
    tensors = [one for one in program.tensors if one.kind != Kind.SCRATCH]
    assert table.needed == sum(one.nbytes for one in tensors)
    assert found.floors["dma"] == table.needed / 16
    assert table.needed < table.total.moved, "this SRAM is too small for the values in between"
    assert table.total.milliseconds == found.cycles / 1e6
    text = str(found)
    assert text == str(table)
    numbers = f"{found.cycles:,}", f"{found.floors['array']:,.0f}"
    words = "16x16 array, 32 KiB SRAM", "array floor", "DMA pace", "microjoule", "ISSCC 2014"
    for piece in (*numbers, *words, "ms at 1000 MHz"):
        assert piece in text
    assert len(text.splitlines()) == 2 + len(table.layers) + 3


def test_a_layer_that_works_in_another_ones_cycles_has_a_note() -> None:
    config = Config()
    products = 512 * config.rows * config.columns
    rows = [
        Row(f"of {cycles}", config, Counter(array_macs=products, cycles=cycles))
        for cycles in (600, 400)
    ]
    for layers, noted in ((rows[:1], False), (rows, True)):
        text = str(Table("region", config, tuple(layers), rows[0], 16))
        assert ("array above 100%" in text) is noted


def test_energy_by_part() -> None:
    counters = {
        "array_macs": 900, "vector_macs": 100, "sram_read_bytes": 700, "sram_written_bytes": 100,
        "bus_bytes": 64,
    }  # fmt: skip
    found = energy.picojoules(counters, Config(sram_bytes=32 << 10))
    assert found == pytest.approx({"arithmetic": 300.0, "sram": 2000.0, "dram": 10400.0})
    between = energy.picojoules(counters, Config(sram_bytes=256 << 10))["sram"]
    assert between == pytest.approx(100 * (20 + 80 * 3 / 5))
    least, most = (
        energy.picojoules(counters, Config(sram_bytes=size))["sram"] for size in (1 << 10, 8 << 20)
    )
    assert (least, most) == (1000.0, 10000.0)


def module() -> relax.Function:
    """A quantized convolution between float operators."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "int8"))
    rng = np.random.default_rng(0)
    weights = relax.const(rng.integers(-127, 128, (3, 3, 16, 16)).astype("int8"))

    def number(value: float, dtype: str) -> relax.Constant:
        return relax.const(np.array(value, dtype))

    with builder.function("main", [x]):
        with builder.dataflow():
            sums = builder.emit(
                qnn.conv2d(
                    x, weights, number(3, "int32"), number(0, "int32"), number(0.1, "float32"),
                    number(0.02, "float32"), padding=(1, 1, 1, 1), channels=16, kernel_size=(3, 3),
                    data_layout="NHWC", kernel_layout="HWIO",
                )
            )  # fmt: skip
            out = builder.emit_output(
                qnn.requantize(
                    sums, number(0.002, "float32"), number(0, "int32"), number(0.1, "float32"),
                    number(-4, "int32"), axis=3, rounding="UPWARD", compute_dtype="int64",
                )
            )  # fmt: skip
        builder.emit_func_output(out)
    return builder.get()


def test_a_module() -> None:
    config = Config(sram_bytes=16 << 10)
    found = report(partition(module(), config))
    (table,) = found.regions
    assert table.config == config
    (row,) = table.layers
    assert row.counters["array_macs"] == 8 * 8 * 9 * 16 * 16
    assert row.tiling is not None
    assert row.tiling.channels == 16
    assert sum(found.energy.values()) == pytest.approx(sum(row.energy.values()))


def test_a_module_with_nothing_for_the_machine() -> None:
    found = report(module())
    assert found.cycles == 0
    assert found.layers == ()
    assert str(found) == "nothing runs on the accelerator"
