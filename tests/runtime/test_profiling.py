"""Profiles: where the time goes, measured, from a known recording, and of the accelerator."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.npu.machine_code import Bytes
from tests.oracles.models import array, convolutional, said
from tests.runtime.limits import BANDWIDTH, PEAK
from tvmlab import npu
from tvmlab.errors import InputError
from tvmlab.measure import bench
from tvmlab.measure.bench import Measurement
from tvmlab.runtime import peak as _peak
from tvmlab.runtime import profiling
from tvmlab.runtime.peak import StreamTriad
from tvmlab.runtime.profiling import Event, Recording
from tvmlab.schedule import Machine, Work

X = array(1, 3, 8, 8)

pytestmark = pytest.mark.usefixtures("known_limits")


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(convolutional()))


def by_name(profile: profiling.Profile) -> dict[str, profiling.Row]:
    return {row.name: row for row in profile.rows}


def test_there_is_a_row_for_each_function(executable: tvmlab.Executable) -> None:
    rows = by_name(executable.profile(X))
    called = {kernel.name: kernel for kernel in executable.summary().kernels}
    assert rows.keys() == called.keys() | {profiling.MACHINE}
    for name, kernel in called.items():
        assert rows[name].calls == kernel.calls
        assert rows[name].kind == kernel.rule
        assert rows[name].operations == executable.work[name].operations
        assert rows[name].cycles is None
    assert rows[profiling.MACHINE].calls > 5


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


def test_speeds_are_held_against_the_limits(executable: tvmlab.Executable) -> None:
    for row in executable.profile(X, repeats=1).rows:
        if row.kind == profiling.MACHINE:
            assert row.of_peak is row.of_bandwidth is row.operations is None
            continue
        assert row.of_bandwidth == pytest.approx(row.bytes / row.seconds / BANDWIDTH)
        assert row.gigabytes == pytest.approx(row.bytes / row.seconds / 1e9)
        assert row.operations is not None
        if row.operations:
            assert row.of_peak == pytest.approx(row.operations / row.seconds / PEAK)
            assert row.gflops == pytest.approx(row.operations / row.seconds / 1e9)
            assert row.intensity == pytest.approx(row.operations / row.bytes)
        else:
            assert row.of_peak is None


def test_a_loaded_executable_tells_as_much(executable: tvmlab.Executable, tmp_path: Any) -> None:
    loaded = tvmlab.load_executable(executable.save(tmp_path / "saved.so"))
    assert loaded.work == executable.work

    def known(profile: profiling.Profile) -> Any:
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
    with pytest.raises(InputError, match="is missing"):
        executable.profile()
    with pytest.raises(InputError):
        executable.profile(array(1, 3, 8, 9))


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
    assert rows.keys() == {"test.profiling.fails", profiling.MACHINE}
    assert rows["test.profiling.fails"].calls == 1
    assert rows["test.profiling.fails"].kind == "other"


def test_the_table_has_a_line_for_each_row(executable: tvmlab.Executable) -> None:
    profile = executable.profile(X, repeats=1)
    head, *lines = str(profile).splitlines()
    assert head.split()[:3] == ["function", "output", "calls"]
    assert [line.split("  ")[0] for line in lines[:5]] == [row.name for row in profile.rows]
    outputs = {line.split()[0]: line.split()[1] for line in lines[:5]}
    assert outputs["transpose"] == "1x8x8x3"
    assert "limits of this machine: 100 GFLOP/s float32, 10 GB/s" in lines
    assert len({len(line) for line in (head, *lines[:5]) if line}) <= 5


def test_the_triad_computes_what_it_says() -> None:
    loop = StreamTriad()
    loop()
    a, b, c = (tensor.numpy() for tensor in loop._arrays)
    np.testing.assert_array_equal(c, a + 2 * b)
    assert loop.bytes == a.nbytes + b.nbytes + c.nbytes


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
    rows = {row.name: row for row in profiling._rows(recording, work, {})}
    assert rows.keys() == {"conv2d", "mean", profiling.MACHINE}
    assert rows["conv2d"].seconds == pytest.approx(120e-9)
    assert rows["mean"].seconds == pytest.approx(20e-9)
    # 14 is left of 84, twice, less the 4 by which the quickest run was longer.
    assert rows[profiling.MACHINE].seconds == pytest.approx(24e-9)
    assert (rows["conv2d"].calls, rows["mean"].calls, rows[profiling.MACHINE].calls) == (2, 1, 1)
    assert (rows["conv2d"].operations, rows["conv2d"].bytes) == (200, 16)
    assert rows["conv2d"].share == pytest.approx(120 / 160)
    assert rows["conv2d"].of_peak == pytest.approx(200 / 120e-9 / PEAK)


QUIET = profiling.Profile(
    (profiling.Row("f", "Contraction", 1, 1e-3, 1.0, 8, "float32", 4, 1.04, 30.0),),
    Measurement((1e-3,)),
    Measurement((1.04e-3,)),
    "llvm",
    {"float32": PEAK},
    BANDWIDTH,
    watched(1),
)


@pytest.mark.parametrize(
    ("changed", "sign"),
    [
        ({}, None),
        ({"of_peak": 1.06}, "a row computes at 106% of the peak"),
        ({"of_peak": None}, None),
        ({"seconds": 1.06e-3}, "rows add up to 106.0%"),
        ({"seconds": 0.94e-3}, "rows add up to 94.0%"),
        ({"watched": 0.94e-3}, "watching added -6.0%"),
        ({"watched": 1.06e-3}, "watching added +6.0%"),
        ({"watched": 1.054e-3}, None),  # the five calls of the run may cost as much
    ],
)
def test_a_busy_machine_is_said(changed: dict[str, Any], sign: str | None) -> None:
    """Once each in the table and in the data, and no number is another for it."""
    changed = dict(changed)
    taken = Measurement((changed.pop("watched", 1.04e-3),))
    row = replace(QUIET.rows[0], **changed)
    found = replace(QUIET, rows=(row,), watched=taken)
    assert found.data()["note"] == found.note
    assert found.data()["rows"][0]["of_peak"] == row.of_peak
    noted = [line for line in str(found).splitlines() if "busy" in line]
    if sign is None:
        assert found.note is None
        assert not noted
    else:
        assert found.note is not None
        assert found.note.startswith(f"the machine was busy while it was measured: {sign}; measure")
        assert noted == [f"note: {found.note}"]


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loop_computes_what_its_operations_say(dtype: str) -> None:
    """Halved and a half added, so often that every number arrives at one: no step is left out."""
    loop = bench.PeakLoop(dtype)
    loop()
    after = loop._after.numpy()
    assert after.dtype == dtype
    assert np.all(after == 1)
    assert not np.any(loop._before.numpy() == 1)
    threads, chains, lanes = after.shape
    assert threads == bench.peer_threads()
    assert loop.flops % (2 * threads * chains * lanes) == 0
    assert lanes * after.itemsize in (16, 32, 64)
    assert chains >= 12


def test_the_peak_is_measured() -> None:
    assert 0 < bench.peak_flops() < np.inf


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_the_loop_of_dot_products_computes_what_its_operations_say(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are done, and in order: NumPy does them after it."""
    machine = Machine.of(tvmlab.host_target())
    dot = machine.dot8 or machine.dot16 if dtype == "int8" else machine.dot16
    if dot is None:
        pytest.skip(f"this processor lacks an instruction that sums products of {dtype}")
    monkeypatch.setattr(_peak, "_STEPS", 50)
    loop = bench.PeakLoop(dtype)
    loop()
    held = loop._before.numpy()
    for _ in range(50):
        factors = held.view(dot.data).reshape(*held.shape, dot.depth)
        held = held + factors.astype(np.int32).sum(axis=-1, dtype=np.int32) * np.int32(3)
    np.testing.assert_array_equal(loop._after.numpy(), held)
    assert loop.flops == 50 * held.size * dot.depth * 2


@pytest.mark.parametrize("dtype", ["int32", "float16", ""])
def test_a_dtype_that_has_no_loop(dtype: str) -> None:
    with pytest.raises(InputError, match=f"no peak loop for '{dtype}'"):
        bench.PeakLoop(dtype)
