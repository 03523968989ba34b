"""How layers are cut: what fits, what the cost model prefers, and what it says about cycles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.npu.regions import Builder
from tvmlab.npu import simulator
from tvmlab.npu.codegen import cost
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.memory import arrange
from tvmlab.npu.codegen.tiling import Tiling, candidates, fits, plan, smallest
from tvmlab.npu.codegen.work import Kind, Place, Work, of
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype
from tvmlab.npu.layers import Value

NHWC = Place.NHWC


def conv(side: int, channels: int, out: int, kernel: int = 3, stride: int = 1) -> Work:
    size = -(-side // stride)
    pad = kernel // 2
    return Work(
        Kind.MATMUL, 1, (side, side), (size, size), channels, out, (kernel, kernel),
        (stride, stride), (1, 1), (pad, pad), (1,), 1, 1, 12, 0,
    )  # fmt: skip


def planned(work: Work, config: Config, room: int | None = None) -> Tiling:
    places = (NHWC,) * (len(work.in_bytes) + 1)
    found = plan(work, places, config, config.sram_bytes if room is None else room)
    assert found is not None
    return found


def buffers(tiling: Tiling) -> int:
    return (
        sum(tiling.image_bytes) * tiling.image_slots
        + tiling.table_bytes * tiling.table_slots
        + tiling.weight_bytes * tiling.slots
        + tiling.out_bytes * tiling.out_slots
    )


@settings(max_examples=60, deadline=None)
@given(
    side=st.integers(1, 60), channels=st.integers(1, 300), out=st.integers(1, 300),
    kernel=st.sampled_from([1, 3, 5]), stride=st.integers(1, 2), room=st.integers(1 << 10, 1 << 18),
    accumulators=st.integers(1, 1 << 14),
)  # fmt: skip
def test_a_tile_is_within_the_memories_or_there_is_none(
    side: int, channels: int, out: int, kernel: int, stride: int, room: int, accumulators: int
) -> None:
    config = Config(accumulators=accumulators)
    work = conv(side, channels, out, kernel, stride)
    found = plan(work, (NHWC, NHWC), config, room)
    assert (found is None) == (smallest(work, config)[0] > room)
    if found:
        assert buffers(found) <= room
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


def test_more_room_is_never_slower() -> None:
    cycles = [planned(conv(28, 128, 128), Config(), 1 << i).cycles for i in range(12, 19)]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > cycles[-1]


def test_buffers_are_doubled_where_there_are_several_tiles() -> None:
    large = planned(conv(56, 64, 64), Config())
    assert (large.slots, large.image_slots, large.sum_slots) == (2, 2, 2)
    small = planned(conv(4, 8, 8), Config(), 1 << 18)
    assert (small.rows, small.cols, small.channels) == (4, 4, 8)
    assert small.image_slots == small.table_slots == small.out_slots == small.sum_slots == 1


def test_deep_sums_are_added_up_part_by_part() -> None:
    found = planned(conv(14, 2048, 512), Config(sram_bytes=16 << 10))
    assert found.depth < 2048
    assert not (found.image_whole and found.weights_whole)


def test_large_weights_stay_and_so_do_large_images() -> None:
    weights = planned(conv(28, 256, 256), Config(), 64 << 10)
    assert weights.cycles < 1.1 * 9 * 16 * 16 * 28 * 28
    wide = planned(conv(56, 64, 256, 1).flat(), Config(), 64 << 10)
    assert wide.cycles < 1.1 * 4 * 16 * 56 * 56


@pytest.mark.parametrize("side", [7, 14, 28])
def test_the_estimate_of_the_array_is_what_the_machine_counts(side: int) -> None:
    """One layer: the model's cycles are near the simulator's, and the array's are exact."""
    builder = Builder(1)
    source = builder.input(1, side, side, 48)
    region = builder.region(builder.conv(source, 80, (3, 3), pads=(1, 1, 1, 1)))
    job = arrange(region, Config()).jobs[0]
    assert not isinstance(job, int)
    counted = simulator.count(compile_region(region, Config()).to_bytes())[0]
    tiles = math.ceil(side / job.tiling.rows) * math.ceil(side / job.tiling.cols)
    tiles *= math.ceil(80 / job.tiling.channels)
    pixels = sum(
        max(16, min(job.tiling.rows, side - y) * min(job.tiling.cols, side - x))
        for y in range(0, side, job.tiling.rows)
        for x in range(0, side, job.tiling.cols)
    )
    assert counted["array_cycles"] == tiles * 32 + pixels * 9 * 3 * 5
    assert 0.8 < counted["cycles"] / job.tiling.cycles < 1.25


def test_equal_layers_are_planned_once() -> None:
    builder = Builder(1)
    value = builder.input(1, 8, 8, 16)
    for _ in range(40):
        value = builder.conv(value, 16, (3, 3), pads=(1, 1, 1, 1))
    config = Config(sram_bytes=12345)
    before = plan.cache_info().misses
    arrange(builder.region(value), config)
    few = plan.cache_info().misses - before
    for _ in range(400):
        value = builder.conv(value, 16, (3, 3), pads=(1, 1, 1, 1))
    arrange(builder.region(value), config)
    assert plan.cache_info().misses - before <= few + 2


def test_tables_that_stream_have_a_buffer_more_than_their_weights() -> None:
    """Sums are requantized with them while the array has gone on to the next weights."""
    found = planned(conv(56, 64, 256, 1).flat(), Config(), 48 << 10)
    assert found.channels * 2 < 256
    assert (found.joined, found.slots, found.table_slots) == (False, 2, 3)


def test_folded_taps_take_fewer_blocks() -> None:
    first = conv(224, 3, 64, 7, 2)
    assert first.folds(16)
    assert not conv(56, 16, 64).folds(16)
    assert planned(first.fold(), Config()).cycles < 0.4 * planned(first, Config()).cycles


def test_candidates_are_costed_together() -> None:
    """The search is over arrays: as many cycles as there are cuts."""
    cuts = candidates(conv(28, 64, 64), (NHWC, NHWC), Config())
    assert cost.estimate(cuts).shape == cuts.rows.shape
    assert np.isfinite(cost.estimate(cuts)).all()
