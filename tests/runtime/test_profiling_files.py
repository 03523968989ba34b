"""What a profile is drawn as: traces that keep the format, flame graphs, bars and rooflines."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.models import said
from tvmlab.errors import InputError, TvmlabError
from tvmlab.measure.bench import Measurement
from tvmlab.runtime.profiling import MACHINE, Event, Profile, Row, flame
from tvmlab.runtime.profiling.result import events

SVG = "{http://www.w3.org/2000/svg}"


def row(name: str, seconds: float, kind: str = "Contraction", **more: Any) -> Row:
    fields: dict[str, Any] = {
        "calls": 1, "share": 0.1, "operations": 2000, "dtype": "float32", "bytes": 1000,
        "of_peak": 0.5, "of_bandwidth": 0.25, "tensors": ("float32 2x8", "float32 2x4"),
    }  # fmt: skip
    return Row(name, kind, seconds=seconds, **{**fields, **more})


def profile(rows: list[Row], run: list[Event]) -> Profile:
    time = run[0].nanoseconds / 1e9
    whole = Measurement((time,))
    return Profile(tuple(rows), whole, whole, "llvm", {"float32": 1e11}, 1e10, tuple(run))


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """A run: calls, some of which call others, that begin and end one after the other."""
    names = st.sampled_from(["conv2d", "mean", "vm.builtin.reshape", "a<b>&\"c'", "in\0ner\ud800"])
    clock = draw(st.integers(0, 10**15))
    found: list[list[Any]] = []

    def call(name: str, depth: int) -> None:
        nonlocal clock
        place = len(found)
        found.append([name, depth, clock, 0, draw(st.integers(0, 10**9))])
        clock += draw(st.integers(0, 5000))
        if depth < 3:
            for _ in range(draw(st.integers(0, 3 if depth else 6))):
                call(draw(names), depth + 1)
                clock += draw(st.integers(0, 200))
        found[place][3] = clock

    call("main", 0)
    return [Event(*fields) for fields in found]


ROWS = [row("conv2d", 2e-6), row("a<b>&\"c'", 1e-6, "ElementWise"), row(MACHINE, 1e-7, MACHINE)]


def check_format(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Hold a trace against the Trace Event Format; return its complete events."""
    assert set(content) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    kinds = {"name": str, "pid": int, "tid": int, "ts": (int, float), "args": dict}
    more = {"M": {}, "X": {"dur": (int, float), "cat": str}}
    for event in content["traceEvents"]:
        for key, kind in {**kinds, **more[event["ph"]]}.items():
            assert isinstance(event[key], kind)
        assert min(event["ts"], event.get("dur", 0)) >= 0
    events = content["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    named = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    assert {(event["pid"], event["tid"]) for event in complete} <= set(named)
    assert len(named) == len(set(named))
    return complete


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Slices of a track stand one in the other or one after the other, to the nanosecond."""
    open_: list[int] = []
    last = 0
    for event in events:
        start = round(1000 * event["ts"])
        end = start + round(1000 * event["dur"])
        assert start >= last
        last = start
        while open_ and open_[-1] <= start and end > open_[-1]:
            open_.pop()
        assert not open_ or end <= open_[-1]
        open_.append(end)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_a_trace_keeps_the_format(run: list[Event]) -> None:
    content = {"traceEvents": events(profile(ROWS, run)), "displayTimeUnit": "ms"}
    found = check_format(json.loads(json.dumps(content, allow_nan=False)))
    check_nesting(found)
    assert [event["name"] for event in found] == [event.name for event in run]
    assert found[0]["ts"] == 0
    for event, seen in zip(found, run, strict=True):
        assert round(1000 * event["dur"]) == seen.nanoseconds
        assert event["args"]["bytes"] == seen.bytes


def frames(found: Profile) -> flame.Frame:
    return flame.frames(found.run, found.kinds)


def simple() -> Profile:
    calls = [("conv2d", 1, 100, 2100), ("inner", 1, 2200, 3500), ("mean", 2, 2300, 3300)]
    calls.append(("vm.builtin.reshape", 1, 3600, 3700))
    run = [Event("main", 0, 0, 4000, 10), *(Event(*fields, 8) for fields in calls)]
    return profile([row("conv2d", 2e-6), row("mean", 1e-6, "Reduction")], run)


def test_a_file_of_a_trace_is_whole(tmp_path: Path) -> None:
    path = simple().trace(tmp_path / "trace.json")
    content = json.loads(path.read_text())
    events = {event["name"]: event for event in check_format(content)}
    assert content["otherData"]["target"] == "llvm"
    assert events["conv2d"]["args"] == {
        "bytes": 8,
        "operations": 2000,
        "tensors": ["float32 2x8", "float32 2x4"],
    }
    assert events["conv2d"]["cat"] == "Contraction"
    assert events["vm.builtin.reshape"]["cat"] == MACHINE
    assert (events["mean"]["ts"], events["mean"]["dur"]) == (2.3, 1.0)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [Profile.trace, Profile.flame])
def test_where_nothing_can_be_written(write: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "file", "a\0b"):
        with pytest.raises(TvmlabError, match="cannot be written") as caught:
            write(simple(), path)
        said(caught.value)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_a_flame_graph_is_a_picture_without_scripts(run: list[Event]) -> None:
    root = frames(profile(ROWS, run))
    picture = ElementTree.fromstring(flame.svg(root, "a < b"))
    assert picture.tag == f"{SVG}svg"
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert {part.tag.removeprefix(SVG) for part in picture.iter()} <= {
        *("svg", "title", "rect", "text"),
    }
    for box in picture.findall(f"{SVG}svg"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert x >= 0
        assert y >= 0
        assert x + float(box.attrib["width"]) <= width + 0.02
        assert y + float(box.attrib["height"]) <= height


def test_bars_are_the_longest_rows() -> None:
    rows = [row("fused_" + "convolution_" * 8 + str(i), (9 - i) * 1e-6) for i in range(5)]
    (axes,) = profile(rows, [Event("main", 0, 0, 40_000, 0)]).bars(3).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == 4
    assert labels[0].startswith("1. fused_convolution")
    assert labels[-1] == "2 more"
    assert max(map(len, labels)) <= 40
    assert axes.get_xlabel() == "us"
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([9, 8, 7, 11])


def test_a_roofline_has_the_rows_that_compute_in_its_dtype() -> None:
    rows = [
        row("conv2d", 1e-6),
        row("relu", 1e-6, "ElementWise", operations=100),
        row("reshape", 1e-6, "ElementWise", operations=0),
        row("quantized", 1e-6, operations=10**6, dtype="int32", of_peak=None),
        row("unknown", 1e-6, "other", operations=None, dtype=""),
        row(MACHINE, 1e-6, MACHINE, operations=None, dtype="", bytes=0),
    ]
    run = [Event("main", 0, 0, 6000, 0)]
    (axes,) = profile(rows, run).roofline().axes
    _, _, *groups = axes.lines
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in groups}
    assert points["Contraction"] == [pytest.approx((2, 2))]
    assert points["ElementWise"] == [pytest.approx((0.1, 0.1))]
    with pytest.raises(InputError, match="no function computes") as caught:
        profile(rows[3:], run).roofline()
    said(caught.value)
