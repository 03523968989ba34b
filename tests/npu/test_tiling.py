"""How layers are tiled and placed: what fits, what shares memory, and how long it takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.npu.regions import CONFIGS, Builder, networks
from tests.short import examples
from tvmlab.npu import simulator
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.memory import plan_memory
from tvmlab.npu.codegen.shape import shape_of
from tvmlab.npu.codegen.tiling import fits, smallest
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype
from tvmlab.npu.layers import Value


def test_the_reason_names_what_is_needed_and_what_there_is() -> None:
    builder = Builder()
    name = builder.conv(builder.input(1, 32, 32, 8), 8, (16, 16))
    layer = builder.layers[0]
    assert fits(layer, builder.values, Config(sram_bytes=64 << 10)) is None
    reason = fits(layer, builder.values, Config(sram_bytes=3000))
    # One channel of the window, its weights for 16 columns, tables of 8 channels, 8 results.
    assert 16 * 16 + 16 * 16 * 16 + 8 * 12 + 8 == 4456
    assert reason == (
        "its smallest tile needs 4,456 bytes of SRAM (a window of 16x16 over 1 channels); there "
        "are 3,000"
    )
    builder.values[name] = Value(name, Dtype.int8, (1, 1 << 16, 1 << 16, 1), "NHWC")
    reason = fits(layer, builder.values, Config())
    assert reason == "a tensor of 4,294,967,296 bytes cannot be addressed: offsets have 31 bits"


def test_what_is_just_enough_is_enough() -> None:
    builder = Builder()
    out = builder.conv(builder.input(1, 20, 20, 8), 8, (16, 16))
    layer, region = builder.layers[0], builder.region(out)
    need = smallest(shape_of(layer, builder.values), Config())[0]
    assert fits(layer, builder.values, Config(sram_bytes=need)) is None
    assert fits(layer, builder.values, Config(sram_bytes=need - 8)) is not None
    assert compile_region(region, Config(sram_bytes=need)).instructions


@settings(max_examples=examples(100), deadline=None)
@given(case=networks(), config=CONFIGS)
def test_values_never_share_bytes(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    region = builder.region(*outputs)
    if any(fits(layer, region.values, config) for layer in region.layers):
        return
    found = plan_memory(region, config)
    kept = [
        (one.made, one.read[-1], found.resident[one.made], found.resident[one.made] + one.nbytes)
        for one in {s.made: s for s in found.storages.values()}.values()
        if one.made in found.resident
    ]
    for i, (made, last, start, end) in enumerate(kept):
        assert 0 <= start < end <= config.sram_bytes
        for made_2, last_2, start_2, end_2 in kept[:i]:
            assert last < made_2 or last_2 < made or end <= start_2 or end_2 <= start
        assert all(one.limit <= start for one in found.layers[made : last + 1] if one)


@pytest.mark.parametrize("side", [7, 28])
def test_the_estimate_is_near_what_the_machine_counts(side: int) -> None:
    builder = Builder(1)
    source = builder.input(1, side, side, 48)
    region = builder.region(builder.conv(source, 80, (3, 3), pads=(1, 1, 1, 1)))
    (planned,) = plan_memory(region, Config()).layers
    assert planned is not None
    counted = simulator.count(compile_region(region, Config()).to_bytes())[0]
    assert 0.8 < counted["cycles"] / planned.tiling.cycles < 1.25


def test_units_overlap() -> None:
    builder = Builder(2)
    out = builder.conv(builder.input(1, 32, 32, 32), 64, (3, 3), pads=(1, 1, 1, 1))
    program = compile_region(builder.region(out), Config(sram_bytes=32 << 10))
    counted = simulator.count(program.to_bytes())[0]
    units = [counted[f"{unit}_cycles"] for unit in ("dma", "array", "vector")]
    assert counted["cycles"] < max(units) + 0.3 * (sum(units) - max(units))
