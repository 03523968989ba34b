"""How layers are cut and placed: what fits, what shares memory, and how long it takes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.npu.regions import CONFIGS, Builder, networks
from tests.short import examples
from tvmlab.npu import simulator
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.memory import Job, arrange
from tvmlab.npu.codegen.tiling import fits, plan, smallest
from tvmlab.npu.codegen.work import Kind, Place, Work, of
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype
from tvmlab.npu.layers import Value


@settings(max_examples=60, deadline=None)
@given(
    side=st.integers(1, 60), channels=st.integers(1, 300), out=st.integers(1, 300),
    kernel=st.sampled_from([1, 3, 5]), stride=st.integers(1, 2), room=st.integers(1 << 10, 1 << 18),
    accumulators=st.integers(1, 1 << 14),
)  # fmt: skip
def test_a_tile_is_within_the_memories_or_there_is_none(
    side: int, channels: int, out: int, kernel: int, stride: int, room: int, accumulators: int
) -> None:
    config, size, pad = Config(accumulators=accumulators), -(-side // stride), kernel // 2
    work = Work(
        Kind.MATMUL, 1, (side, side), (size, size), channels, out, (kernel, kernel),
        (stride, stride), (1, 1), (pad, pad), (1,), 1, 1, 12, 0,
    )  # fmt: skip
    found = plan(work, (Place.NHWC, Place.NHWC), config, room)
    assert (found is None) == (smallest(work, config)[0] > room)
    if found:
        buffers = (
            sum(found.image_bytes) * found.image_slots
            + found.table_bytes * found.table_slots
            + found.weight_bytes * found.slots
            + found.out_bytes * found.out_slots
        )
        assert buffers <= room
        assert found.sums * found.sum_slots <= accumulators
        assert found.sums >= found.rows * found.cols * found.channels


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
    few = fits(layer, builder.values | {name: builder.values["v0"]}, Config(sram_bytes=63))
    assert few == "63 bytes of SRAM are too few for any layer"


def test_what_is_just_enough_is_enough() -> None:
    builder = Builder()
    out = builder.conv(builder.input(1, 20, 20, 8), 8, (16, 16))
    layer, region = builder.layers[0], builder.region(out)
    need = smallest(of(layer, builder.values), Config())[0]
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
    found = arrange(region, config)
    kept = [
        (one.made, one.read[-1], found.shelf[one.made], found.shelf[one.made] + one.nbytes)
        for one in {s.made: s for s in found.storages.values()}.values()
        if one.made in found.shelf
    ]
    for i, (made, last, start, end) in enumerate(kept):
        assert 0 <= start < end <= config.sram_bytes
        for made_2, last_2, start_2, end_2 in kept[:i]:
            assert last < made_2 or last_2 < made or end <= start_2 or end_2 <= start
        for job in found.jobs[made : last + 1]:
            assert (job.bench if isinstance(job, Job) else job) <= start


def test_long_networks_take_a_walk() -> None:
    """Each layer is placed and taken away once: thousands are no more work each than a few."""
    builder = Builder(1)
    value = builder.input(1, 4, 4, 16)
    for _ in range(1500):
        value = builder.add(builder.add(value), value)
    found = arrange(builder.region(value), Config(sram_bytes=4 << 10))
    assert len(found.jobs) == 3000
    assert len(found.shelf) == 2999


@pytest.mark.parametrize("side", [7, 28])
def test_the_estimate_is_near_what_the_machine_counts(side: int) -> None:
    builder = Builder(1)
    source = builder.input(1, side, side, 48)
    region = builder.region(builder.conv(source, 80, (3, 3), pads=(1, 1, 1, 1)))
    job = arrange(region, Config()).jobs[0]
    assert isinstance(job, Job)
    counted = simulator.count(compile_region(region, Config()).to_bytes())[0]
    assert 0.8 < counted["cycles"] / job.tiling.cycles < 1.25


def test_overlapping_is_faster_than_taking_turns() -> None:
    builder = Builder(2)
    out = builder.conv(builder.input(1, 32, 32, 32), 64, (3, 3), pads=(1, 1, 1, 1))
    program = compile_region(builder.region(out), Config(sram_bytes=32 << 10))
    counted = simulator.count(program.to_bytes())[0]
    units = [counted[f"{unit}_cycles"] for unit in ("dma", "array", "vector")]
    assert counted["cycles"] < max(units) + 0.3 * (sum(units) - max(units))
