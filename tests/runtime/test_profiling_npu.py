"""Regions of the accelerator in a profile: by their own clock, besides the simulator's time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.npu.machine_code import Bytes
from tvmlab import npu
from tvmlab.errors import InputError
from tvmlab.npu import simulator
from tvmlab.runtime import profiling

pytestmark = pytest.mark.usefixtures("known_limits")


@pytest.fixture(scope="module")
def network() -> tuple[Any, np.ndarray]:
    net = Bytes()
    one = net.conv(net.inputs[0])
    mod = npu.partition(net.module(net.add(net.turn(one), one)))
    return mod, net.rng.integers(0, 256, (1, 4, 3, 3)).astype("uint8")


@pytest.fixture(scope="module")
def profiled(network: tuple[Any, np.ndarray]) -> profiling.Profile:
    mod, x = network
    return tvmlab.compile(mod).profile(x, repeats=2)


def regions(profile: profiling.Profile) -> dict[str, profiling.Row]:
    return {row.name: row for row in profile.rows if row.kind == "accelerator"}


def test_a_region_has_the_cycles_of_the_report(
    network: tuple[Any, np.ndarray], profiled: profiling.Profile
) -> None:
    tables = {table.name: table for table in npu.report(network[0]).regions}
    rows = regions(profiled)
    assert rows.keys() == tables.keys()
    assert rows
    for name, row in rows.items():
        total = tables[name].total
        assert row.cycles == total.cycles == sum(n.cycles for n in profiled.layers[name])
        assert [n.name for n in profiled.layers[name]] == [n.name for n in tables[name].layers]
        macs = total.counters["array_macs"] + total.counters["vector_macs"]
        assert (row.operations, row.dtype, row.of_peak) == (2 * macs, "int8", None)
        assert row.bytes > 0
    assert profiled.clock_mhz == tables[name].config.clock_mhz


def test_the_table_says_whose_clock_it_is(profiled: profiling.Profile) -> None:
    head, *lines = str(profiled).splitlines()
    assert head.endswith("cycles")
    cycles = sum(row.cycles or 0 for row in profiled.rows)
    (last,) = [line for line in lines if line.startswith("accelerator: ")]
    assert f"{cycles:,} cycles" in last
    assert "simulator" in last


def test_a_saved_network_tells_the_same(network: tuple[Any, np.ndarray], tmp_path: Any) -> None:
    mod, x = network
    compiled = tvmlab.compile(mod)
    loaded = tvmlab.load_executable(compiled.save(tmp_path / "npu.so"))
    one, other = (regions(each.profile(x, repeats=1)) for each in (compiled, loaded))
    assert {name: row.cycles for name, row in one.items()} == {
        name: row.cycles for name, row in other.items()
    }


def test_the_trace_has_the_layers_by_the_accelerators_clock(
    profiled: profiling.Profile, tmp_path: Any
) -> None:
    events = json.loads(profiled.trace(tmp_path / "t.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
    layers = [layer for name in regions(profiled) for layer in profiled.layers[name]]
    assert sorted(event["name"] for event in slices) == sorted(layer.name for layer in layers)
    assert profiled.clock_mhz is not None
    for event in slices:
        assert event["dur"] == pytest.approx(event["args"]["cycles"] / profiled.clock_mhz, abs=1e-3)
        assert event["cat"] in regions(profiled)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert f"accelerator at {profiled.clock_mhz} MHz" in names


def test_the_flame_graph_has_the_layers_on_their_region(
    profiled: profiling.Profile, tmp_path: Any
) -> None:
    text = profiled.flame(tmp_path / "f.svg").read_text()
    for name in regions(profiled):
        assert f"<title>{name}: " in text


def test_other_modules_hold_no_program(network: tuple[Any, np.ndarray]) -> None:
    plain = tvmlab.compile(network[0]).vm_executable.mod
    with pytest.raises(InputError, match="holds no program"):
        simulator.described(plain)
