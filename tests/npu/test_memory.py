"""What stays on chip: never two values at one place at a time, and as much as is worth it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.npu.regions import Builder
from tests.npu.test_lower import CONFIGS, networks, residual
from tvmlab.npu.codegen.memory import Job, Plan, arrange
from tvmlab.npu.codegen.storage import storages
from tvmlab.npu.codegen.tiling import fits
from tvmlab.npu.config import Config
from tvmlab.npu.layers import Region


def spans(region: Region, found: Plan) -> list[tuple[int, int, int, int]]:
    """Give the first and last layer, the start and the end of everything on the shelf."""
    return [
        (one.made, one.read[-1], found.shelf[one.made], found.shelf[one.made] + one.nbytes)
        for one in {s.made: s for s in found.storages.values()}.values()
        if one.made in found.shelf
    ]


@settings(max_examples=100, deadline=None)
@given(case=networks(), config=CONFIGS)
def test_values_never_share_bytes(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    region = builder.region(*outputs)
    if any(fits(layer, region.values, config) for layer in region.layers):
        return
    found = arrange(region, config)
    kept = spans(region, found)
    for i, (made, last, start, end) in enumerate(kept):
        assert 0 <= start < end <= config.sram_bytes
        for made_2, last_2, start_2, end_2 in kept[:i]:
            assert last < made_2 or last_2 < made or end <= start_2 or end_2 <= start
        for job in found.jobs[made : last + 1]:
            assert (job.bench if isinstance(job, Job) else job) <= start


def test_a_network_that_fits_stays_whole() -> None:
    builder, out = residual(16)
    found = arrange(builder.region(out), Config(sram_bytes=32 << 10))
    assert set(found.shelf) == {0, 1}


def test_a_shelf_is_given_up_where_benches_are_worth_more() -> None:
    """A value of 4 KiB could lie in 7 KiB, but the tiles of the rest would have too little."""
    builder, out = residual(16)
    kept = {
        kib: len(arrange(builder.region(out), Config(sram_bytes=kib << 10)).shelf)
        for kib in (7, 8, 12)
    }
    assert kept == {7: 0, 8: 1, 12: 2}


def test_the_place_of_what_is_no_longer_read_is_taken_again() -> None:
    builder = Builder(1)
    value = builder.input(1, 16, 16, 16)
    for _ in range(30):
        value = builder.conv(value, 16, (3, 3), pads=(1, 1, 1, 1))
    found = arrange(builder.region(value), Config(sram_bytes=24 << 10))
    assert len(found.shelf) == 29
    assert len(set(found.shelf.values())) == 2


@pytest.mark.parametrize(
    ("layout", "first", "second", "shared"),
    [
        ("NHWC", (2, 3, 4, 5), (2, 12, 1, 5), True),
        ("NCHW", (2, 3, 4, 5), (2, 12, 1, 5), True),
        ("NCHW", (2, 3, 4, 5), (2, 3, 5, 4), False),
        ("NCHW", (2, 1, 1, 5), (2, 5), True),
        ("NCHW", (2, 2, 1, 5), (2, 10), False),
        ("NHWC", (2, 2, 1, 5), (2, 10), True),
    ],
)
def test_views_share_bytes_where_the_order_is_the_same(
    layout: str, first: Any, second: Any, shared: bool
) -> None:
    builder = Builder(layout=layout)
    source = builder.conv(builder.input(*first), first[3])
    out = builder.view(source, second)
    found = storages(builder.region(out))
    assert (found[source] is found[out]) is shared


def test_long_networks_take_a_walk() -> None:
    """Each layer is placed and taken away once: thousands are no more work each than a few."""
    builder = Builder(1)
    value = builder.input(1, 4, 4, 16)
    for _ in range(1500):
        value = builder.add(builder.add(value), value)
    found = arrange(builder.region(value), Config(sram_bytes=4 << 10))
    assert len(found.jobs) == 3000
    assert len(found.shelf) == 2999
