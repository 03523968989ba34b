"""Profiles: where the time goes, measured, from a known recording, and of the accelerator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tests.npu.machine_code import Bytes
from tests.oracles.models import array, convolutional, model, node, said, weight
from tests.runtime.limits import PEAK
from tvmlab import npu
from tvmlab.compiler import simplify
from tvmlab.errors import InputError
from tvmlab.measure import bench
from tvmlab.runtime import profiling, timing
from tvmlab.runtime.profiling import Event, Recording
from tvmlab.schedule import Machine, Tally, Work, fused_passes, schedule_passes

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
    assert rows.keys() == {"conv2d", "mean", profiling.MACHINE}
    assert rows["conv2d"].seconds == pytest.approx(120e-9)
    assert rows["mean"].seconds == pytest.approx(20e-9)
    # 14 is left of 84, twice, less the 4 by which the quickest run was longer.
    assert rows[profiling.MACHINE].seconds == pytest.approx(24e-9)
    assert (rows["conv2d"].calls, rows["mean"].calls, rows[profiling.MACHINE].calls) == (2, 1, 1)
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
    threads, chains, lanes = after.shape
    assert threads == bench.peer_threads()
    assert loop.flops % (2 * threads * chains * lanes) == 0
    assert lanes * after.itemsize in (16, 32, 64)
    assert chains >= 12


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


@pytest.mark.parametrize("dtype", ["int32", "float16", ""])
def test_a_dtype_that_has_no_loop(dtype: str) -> None:
    with pytest.raises(InputError, match=f"no peak loop for '{dtype}'"):
        bench.PeakLoop(dtype)


# The arithmetic of a function, counted by hand and by the package.


def tallied(mod: tvm.IRModule) -> dict[str, Work]:
    tally = Tally()
    tally(mod)
    return tally.work


def of(proto: Any, step: str = "winograd") -> dict[str, Work]:
    """What is counted in a network before any schedule."""
    target = tvmlab.host_target()
    with target:
        return tallied(fused_passes(target, step)(simplify(tvmlab.load(proto))))


def test_a_network_counted_by_hand() -> None:
    """[1, 3, 8, 8]: a 3x3 convolution to 4 channels with bias and ReLU, a mean, a reshape."""
    work = of(convolutional(), "fuse")
    pixels, taps = 8 * 8, 3 * 3 * 3
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


def test_a_schedule_changes_no_count() -> None:
    target = tvmlab.host_target()
    with target:
        mod = simplify(tvmlab.load(convolutional()))
        before = tallied(fused_passes(target)(mod))
        after = tallied(schedule_passes(target)(mod))
    assert before.keys() == after.keys()
    for name, found in after.items():
        assert (found.operations, found.dtype) == (before[name].operations, before[name].dtype)
        assert before[name].rule == ""
    assert {found.rule for found in after.values()} == {"Contraction", "Reduction", "ElementWise"}


@I.ir_module(check_well_formed=False)
class Odd:
    @T.prim_func(private=True, s_tir=True)
    def choice(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.serial(8):
            if i < 4:
                y[i] = x[i] * x[i] + T.float32(1)
            else:
                y[i] = T.if_then_else(i < 6, x[i] + T.float32(2), x[7 - i])

    @T.prim_func(private=True, s_tir=True)
    def outside(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.serial(8):
            y[i] = T.call_extern("float32", "sinf", x[i])

    @T.prim_func(private=True, s_tir=True)
    def vectors(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            y[i] = T.shift_right(x[i], 1)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return x


@pytest.mark.parametrize(
    ("data", "weights", "dtype"),
    [("int8", "int8", "int8"), ("uint8", "int8", "int8"), ("int16", "int8", "int16"),
     ("int16", "int16", "int16"), ("int8", "int64", "int32")],
)  # fmt: skip
def test_products_of_narrow_integers(data: str, weights: str, dtype: str) -> None:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def dot(x: T.Buffer((8,), data), w: T.Buffer((8,), weights), y: T.Buffer((1,), "int32")):
            for i in T.serial(8):
                y[0] = y[0] + T.cast(x[i], "int32") * T.cast(w[i], "int32")

    assert tallied(Module)["dot"] == Work(16, dtype, "")


def test_branches_count_as_the_larger_one_and_other_code_as_unknown() -> None:
    work = tallied(Odd)
    assert work["choice"] == Work(16, "float32", "")
    assert work["outside"] == Work(None, "", "")
    assert work["vectors"] == Work(8, "int32", "")
