"""Profiles: where the time goes, measured, from a known recording, and of the accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.npu.machine_code import Bytes
from tests.oracles.models import array, convolutional, model, node, said, weight
from tests.runtime.limits import PEAK
from tvmlab import npu
from tvmlab.compiler import simplify
from tvmlab.errors import InputError, TvmlabError
from tvmlab.measure import bench
from tvmlab.runtime import profiling, timing
from tvmlab.runtime.profiling import MACHINE, Event, Profile, Recording, Row, events
from tvmlab.schedule import Machine, Tally, Work, fused_passes

X = array(1, 3, 8, 8)

pytestmark = pytest.mark.usefixtures("known_limits")


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(convolutional()))


def by_name(profile: Profile) -> dict[str, Row]:
    return {row.name: row for row in profile.rows}


def test_there_is_a_row_for_each_function(executable: tvmlab.Executable) -> None:
    rows = by_name(executable.profile(X))
    called = {kernel.name: kernel for kernel in executable.summary().kernels}
    assert rows.keys() == called.keys() | {MACHINE}
    for name, kernel in called.items():
        assert rows[name].calls == kernel.calls
        assert rows[name].kind == kernel.rule
        assert rows[name].operations == executable.work[name].operations
    assert rows[MACHINE].calls > 5


def test_bytes_are_those_of_inputs_weights_and_outputs(executable: tvmlab.Executable) -> None:
    rows = by_name(executable.profile(X, repeats=1))
    assert rows["transpose"].bytes == 4 * 2 * 3 * 64
    assert rows["mean"].bytes == 4 * (64 * 4 + 4)
    convolution = rows["fused_conv2d_add_relu"]
    assert rows["transpose"].tensors == ("float32 1x3x8x8", "float32 1x8x8x3")
    assert convolution.tensors[-1] == "float32 1x8x8x4"
    packed = convolution.bytes // 4 - 3 * 64 - 4 - 4 * 64  # input, bias, output
    assert packed % 27 == 0
    assert packed >= 27 * 4


def test_a_loaded_executable_tells_as_much(executable: tvmlab.Executable, tmp_path: Any) -> None:
    loaded = tvmlab.load_executable(executable.save(tmp_path / "saved.so"))
    assert loaded.work == executable.work

    def known(profile: Profile) -> Any:
        return {(r.name, r.kind, r.calls, r.operations, r.dtype, r.bytes) for r in profile.rows}

    assert known(loaded.profile(X, repeats=1)) == known(executable.profile(X, repeats=1))


@I.ir_module
class Products:
    @R.function
    def main(x: R.Tensor((8, 16), "int8"), w: R.Tensor((16, 4), "int8")) -> R.Tensor(
        (8, 4), "int32"
    ):
        with R.dataflow():
            sums = R.matmul(x, w, out_dtype="int32")
            y = R.multiply(sums, sums)
            R.output(y)
        return y


def test_products_of_narrow_integers_are_held_against_their_own_peak() -> None:
    x, w = (np.ones(shape, "int8") for shape in ((8, 16), (16, 4)))
    profile = tvmlab.compile(Products).profile(x, w, repeats=1)
    row = profile.rows[[row.dtype for row in profile.rows].index("int8")]
    assert row.of_peak == pytest.approx(row.operations / row.seconds / 4 / PEAK)
    assert profile.peaks == {"int8": 4 * PEAK}
    assert profile.roofline().axes[0].get_title() == "The functions that compute in int8"


def test_wrong_arguments_are_refused(executable: tvmlab.Executable) -> None:
    with pytest.raises(InputError, match="repeats is 0") as caught:
        executable.profile(X, repeats=0)
    said(caught.value)
    with pytest.raises(InputError, match="no peak loop for 'int32'"):
        bench.PeakLoop("int32")


def test_nothing_watches_after_a_run_that_failed() -> None:
    failing = [True]

    @tvm.register_global_func("test.profiling.fails", override=True)
    def fails(x: Any, y: Any) -> None:
        if failing:
            raise ValueError("it has had enough")

    @I.ir_module
    class Calls:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.call_dps_packed("test.profiling.fails", (x,), R.Tensor((4,), "float32"))

    executable = tvmlab.compile(Calls)
    with pytest.raises(ValueError, match="it has had enough"):
        executable.profile(array(4))
    failing.clear()
    # The same machine serves on, and the next profile has nothing of the failed one.
    executable(array(4))
    rows = by_name(executable.profile(array(4), repeats=1))
    assert rows.keys() == {"test.profiling.fails", MACHINE}
    assert rows["test.profiling.fails"].calls == 1
    assert rows["test.profiling.fails"].kind == "other"


def watched(scale: int) -> tuple[Event, ...]:
    """A run of a machine that spends 10 by itself, 4 more for being watched, and 70 in functions.

    All of that `scale` times as long.
    """
    calls = [("vm.builtin.alloc", 1, 2, 5), ("conv2d", 1, 8, 48), ("inner", 1, 50, 81)]
    calls += [("conv2d", 2, 51, 71), ("mean", 2, 71, 81)]
    run = [("main", 0, 0, 84), *calls]
    return tuple(Event(name, depth, scale * a, scale * b, 8) for name, depth, a, b in run)


def test_rows_of_a_known_recording() -> None:
    """Medians, of each row by itself; what watching costs is nowhere."""
    recording = Recording((80, 160, 800), (watched(1), watched(2), watched(10)))
    work = {"conv2d": Work(100, "float32", "Contraction"), "mean": Work(0, "", "Reduction")}
    rows = {row.name: row for row in profiling._rows(recording, work, ())}
    assert rows.keys() == {"conv2d", "mean", MACHINE}
    assert rows["conv2d"].seconds == pytest.approx(120e-9)
    assert rows["mean"].seconds == pytest.approx(20e-9)
    # 14 is left of 84, twice, less the 4 by which the quickest run was longer.
    assert rows[MACHINE].seconds == pytest.approx(24e-9)
    assert (rows["conv2d"].calls, rows["mean"].calls, rows[MACHINE].calls) == (2, 1, 1)
    assert (rows["conv2d"].operations, rows["conv2d"].bytes) == (200, 16)
    assert rows["conv2d"].share == pytest.approx(120 / 160)
    assert rows["conv2d"].of_peak == pytest.approx(200 / 120e-9 / PEAK)


def test_a_region_of_the_accelerator_says_that_it_is_simulated() -> None:
    net = Bytes()
    one = net.conv(net.inputs[0])
    mod = npu.partition(net.module(net.add(net.turn(one), one)))
    x = net.rng.integers(0, 256, (1, 4, 3, 3)).astype("uint8")
    profile = tvmlab.compile(mod).profile(x, repeats=2)
    rows = {row.name: row for row in profile.rows if row.kind == "accelerator"}
    assert rows.keys() == {table.name for table in npu.report(mod).regions}
    assert rows
    for row in rows.values():
        assert (row.operations, row.of_peak) == (None, None)
        assert row.bytes > 0
    assert "the accelerator is simulated" in str(profile)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loop_computes_what_its_operations_say(dtype: str) -> None:
    """Halved and a half added, so often that every number arrives at one: no step is left out."""
    loop = bench.PeakLoop(dtype)
    loop()
    after = loop._after.numpy()
    assert after.dtype == dtype
    assert np.all(after == 1)
    assert not np.any(loop._before.numpy() == 1)
    assert after.shape[0] == bench.peer_threads()
    assert loop.flops % (2 * after.size) == 0


def test_the_limits_are_measured() -> None:
    assert 0 < bench.peak_flops() < np.inf
    assert 0 < timing.peak_bandwidth() < np.inf


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_the_loop_of_dot_products_computes_what_its_operations_say(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are done, and in order: NumPy does them after it."""
    machine = Machine.of(tvmlab.host_target())
    dot = machine.dot8 or machine.dot16 if dtype == "int8" else machine.dot16
    if dot is None:
        pytest.skip(f"this processor lacks an instruction that sums products of {dtype}")
    monkeypatch.setattr(timing, "_STEPS", 50)
    loop = bench.PeakLoop(dtype)
    loop()
    held = loop._before.numpy()
    for _ in range(50):
        factors = held.view(dot.data).reshape(*held.shape, dot.depth)
        held = held + factors.astype(np.int32).sum(axis=-1, dtype=np.int32) * np.int32(3)
    np.testing.assert_array_equal(loop._after.numpy(), held)
    assert loop.flops == 50 * held.size * dot.depth * 2


def tallied(mod: tvm.IRModule) -> dict[str, Work]:
    tally = Tally()
    tally(mod)
    return tally.work


def test_a_network_counted_by_hand() -> None:
    """[1, 3, 8, 8]: a 3x3 convolution to 4 channels with bias and ReLU, a mean, a reshape."""
    target = tvmlab.host_target()
    with target:
        mod = fused_passes(target, "fuse")(simplify(tvmlab.load(convolutional())))
    work, pixels, taps = tallied(mod), 8 * 8, 3 * 3 * 3
    assert {name: found.operations for name, found in work.items()} == {
        # A multiply-add for each tap, then an addition and a maximum; a pad is no arithmetic.
        "fused_conv2d_add_relu": 4 * pixels * (2 * taps + 2),
        # An addition for each pixel, then a division.
        "mean": 4 * (pixels + 1),
        "reshape": 0,
    }
    assert {found.dtype for found in work.values()} == {"float32", ""}


@pytest.mark.parametrize("groups", [1, 2, 10])
def test_a_convolution_of_odd_sizes(groups: int) -> None:
    """Rows, columns and channels are all rounded up for the tiles; 13 * 17 * 10 are of use."""
    inputs = 20 // groups if groups < 10 else 1
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups)]
    shape = (1, groups * inputs, 13, 17)
    proto = model(nodes, {"x": shape}, ["y"], [weight("w", array(10, inputs, 3, 3))])
    work = tvmlab.compile(tvmlab.load(proto)).work
    assert sum(found.operations or 0 for found in work.values()) == 2 * 13 * 17 * 10 * 9 * inputs


def row(name: str, seconds: float, kind: str = "Contraction", **more: Any) -> Row:
    fields: dict[str, Any] = {
        "calls": 1, "share": 0.1, "operations": 2000, "dtype": "float32", "bytes": 1000,
        "of_peak": 0.5, "of_bandwidth": 0.25, "tensors": ("float32 2x8", "float32 2x4"),
    }  # fmt: skip
    return Row(name, kind, seconds=seconds, **{**fields, **more})


def made(rows: list[Row], run: list[Event]) -> Profile:
    time = run[0].nanoseconds / 1e9
    whole = bench.Measurement((time,))
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
    """Slices of a track are one in the other or one after the other, to the nanosecond."""
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
    content = {"traceEvents": events(made(ROWS, run)), "displayTimeUnit": "ms"}
    found = check_format(json.loads(json.dumps(content, allow_nan=False)))
    check_nesting(found)
    assert [event["name"] for event in found] == [event.name for event in run]
    assert found[0]["ts"] == 0
    for event, seen in zip(found, run, strict=True):
        assert round(1000 * event["dur"]) == seen.nanoseconds
        assert event["args"]["bytes"] == seen.bytes


def simple() -> Profile:
    calls = [("conv2d", 1, 100, 2100), ("inner", 1, 2200, 3500), ("mean", 2, 2300, 3300)]
    calls.append(("vm.builtin.reshape", 1, 3600, 3700))
    run = [Event("main", 0, 0, 4000, 10), *(Event(*fields, 8) for fields in calls)]
    return made([row("conv2d", 2e-6), row("mean", 1e-6, "Reduction")], run)


def test_a_trace_names_kinds_and_tensors(tmp_path: Path) -> None:
    content = json.loads(simple().trace(tmp_path / "trace.json").read_text())
    events = {event["name"]: event for event in check_format(content)}
    tensors = ["float32 2x8", "float32 2x4"]
    assert events["conv2d"]["args"] == {"bytes": 8, "operations": 2000, "tensors": tensors}
    assert events["conv2d"]["cat"] == "Contraction"
    assert events["vm.builtin.reshape"]["cat"] == MACHINE
    assert (events["mean"]["ts"], events["mean"]["dur"]) == (2.3, 1.0)


@pytest.mark.parametrize("write", [Profile.trace, Profile.flame])
def test_where_nothing_can_be_written(write: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "file", "a\0b"):
        with pytest.raises(TvmlabError, match="cannot be written") as caught:
            write(simple(), path)
        said(caught.value)


@settings(max_examples=30, deadline=None)
@given(run=runs())
def test_folded_stacks_share_out_the_time_of_the_run(
    tmp_path_factory: pytest.TempPathFactory, run: list[Event]
) -> None:
    path = made(ROWS, run).flame(tmp_path_factory.mktemp("flame") / "calls.folded")
    times = dict(line.rsplit(" ", 1) for line in path.read_text().splitlines())
    assert set(times) >= {run[0].name}
    assert sum(map(int, times.values())) == run[0].nanoseconds


def test_bars_are_the_longest_rows() -> None:
    rows = [row("fused_" + "convolution_" * 8 + str(i), (9 - i) * 1e-6) for i in range(5)]
    (axes,) = made(rows, [Event("main", 0, 0, 40_000, 0)]).bars(3).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == 4
    assert labels[-1] == "2 more"
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
    (axes,) = made(rows, run).roofline().axes
    _, _, *groups = axes.lines
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in groups}
    assert points["Contraction"] == [pytest.approx((2, 2))]
    assert points["ElementWise"] == [pytest.approx((0.1, 0.1))]
    with pytest.raises(InputError, match="no function computes") as caught:
        made(rows[3:], run).roofline()
    said(caught.value)
