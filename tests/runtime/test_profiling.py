"""Where the time goes: every function once, with what it computes and moves."""

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
from tests.oracles.models import array, convolutional, dense, said
from tests.runtime.limits import BANDWIDTH, PEAK
from tvmlab.errors import InputError, TargetError, ToolchainError
from tvmlab.runtime import profiling
from tvmlab.runtime.peak import StreamTriad
from tvmlab.support import toolchain

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


def test_watched_and_plain_runs_are_as_many(executable: tvmlab.Executable) -> None:
    before = executable(X)
    profile = executable.profile(x=X, repeats=3)
    np.testing.assert_array_equal(executable(X), before)
    total = sum(row.seconds for row in profile.rows)
    assert profile.covered == pytest.approx(total / profile.seconds)
    assert len(profile.whole.samples) == len(profile.watched.samples)
    assert len(profile.whole.samples) % 3 == 0
    assert profile.run[0].name == "main"
    times = sorted(profile.watched.samples)
    assert profile.run[0].nanoseconds / 1e9 == times[(len(times) - 1) // 2]


def test_a_loaded_executable_tells_as_much(executable: tvmlab.Executable, tmp_path: Any) -> None:
    loaded = tvmlab.load_executable(executable.save(tmp_path / "saved.so"))
    assert loaded.work == executable.work

    def known(profile: profiling.Profile) -> Any:
        return {(r.name, r.kind, r.calls, r.operations, r.dtype, r.bytes) for r in profile.rows}

    assert known(loaded.profile(X, repeats=1)) == known(executable.profile(X, repeats=1))


def test_a_file_that_does_not_tell_is_profiled_all_the_same(
    executable: tvmlab.Executable, tmp_path: Any
) -> None:
    silent = tvmlab.Executable(executable.vm_executable, executable.target, executable.signature)
    loaded = tvmlab.load_executable(silent.save(tmp_path / "saved.so"))
    profile = loaded.profile(X, repeats=1)
    rows = by_name(profile)
    assert rows.keys() == by_name(executable.profile(X, repeats=1)).keys()
    assert rows["mean"].operations is None
    assert rows["mean"].kind == "other"
    assert rows["mean"].bytes == 4 * (64 * 4 + 4)
    assert "operations are not known of 4 of 5 rows" in str(profile)


def test_sizes_known_only_when_it_runs() -> None:
    executable = tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}))
    few, many = (by_name(executable.profile(array(n, 4), repeats=1)) for n in (2, 50))
    assert few["matmul"].operations is None
    assert "operations are not known of 1 of 3 rows" in str(
        executable.profile(array(3, 4), repeats=1)
    )
    assert many["matmul"].bytes - few["matmul"].bytes == 48 * (4 + 3) * 4


@I.ir_module
class Nested:
    @R.function(private=True)
    def inner(x: R.Tensor((64, 64), "float32")) -> R.Tensor((64, 64), "float32"):
        return R.exp(x)

    @R.function
    def main(x: R.Tensor((64, 64), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        (64, 64), "float32"
    ):
        cls = Nested
        if c:
            y = cls.inner(x)
            r = cls.inner(y)
        else:
            r = R.tanh(x)
        return r


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


def test_what_has_no_peak_is_said(executable: tvmlab.Executable) -> None:
    row = profiling.Row("f", "Parallel", 1, 1.0, 1.0, 8, "int32", 4, None, 0.5)
    found = replace(executable.profile(X, repeats=1), rows=(row,))
    assert "without a share of the peak 1 of 1 rows: no loop measures that of int32" in str(found)
    with pytest.raises(InputError, match="no function computes in a dtype"):
        found.roofline()


def test_functions_that_only_call_have_no_row() -> None:
    executable = tvmlab.compile(Nested)
    names = set(by_name(executable.profile(array(64, 64), np.array(True), repeats=1)))
    assert names == {"tir_exp", profiling.MACHINE}
    profile = executable.profile(array(64, 64), np.array(True), repeats=1)
    assert by_name(profile)["tir_exp"].calls == 2
    names = set(by_name(executable.profile(array(64, 64), np.array(False), repeats=1)))
    assert names == {"tir_tanh", profiling.MACHINE}


def test_wrong_arguments_are_refused(executable: tvmlab.Executable) -> None:
    with pytest.raises(InputError, match="repeats is 0") as caught:
        executable.profile(X, repeats=0)
    said(caught.value)
    with pytest.raises(InputError, match="is missing"):
        executable.profile()
    with pytest.raises(InputError):
        executable.profile(array(1, 3, 8, 9))


def test_another_device_is_refused(executable: tvmlab.Executable) -> None:
    other = tvmlab.Executable(
        executable.vm_executable, tvm.target.Target("opencl"), executable.signature
    )
    with pytest.raises(TargetError, match="only a CPU's functions") as caught:
        other.profile(X)
    said(caught.value)


def test_without_a_compiler_it_says_so(
    executable: tvmlab.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ToolchainError("There is no C++ compiler.", where="PATH", fix="Install g++.")

    monkeypatch.setattr(profiling.toolchain, "build_extension", missing)
    profiling._library.cache_clear()
    with pytest.raises(ToolchainError, match="no C\\+\\+ compiler"):
        executable.profile(X)
    profiling._library.cache_clear()


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


def test_everything_can_be_written_as_json(executable: tvmlab.Executable) -> None:
    profile = executable.profile(X, repeats=2)
    data = json.loads(json.dumps(profile.data(), allow_nan=False))
    assert data["seconds"] == profile.seconds
    assert data["samples"] == list(profile.whole.samples)
    assert data["peaks"] == {"float32": PEAK}
    assert data["bandwidth"] == BANDWIDTH
    assert [row["name"] for row in data["rows"]] == [row.name for row in profile.rows]
    fields = {"kind", "calls", "seconds", "share", "operations", "bytes", "gflops", "of_peak"}
    assert all(fields <= row.keys() for row in data["rows"])


def test_the_table_has_a_line_for_each_row(executable: tvmlab.Executable) -> None:
    profile = executable.profile(X, repeats=1)
    head, *lines = str(profile).splitlines()
    assert head.split()[:3] == ["function", "output", "calls"]
    assert [line.split("  ")[0] for line in lines[:5]] == [row.name for row in profile.rows]
    outputs = {line.split()[0]: line.split()[1] for line in lines[:5]}
    assert outputs["transpose"] == "1x8x8x3"
    assert "limits of this machine: 100 GFLOP/s float32, 10 GB/s" in lines
    assert len({len(line) for line in (head, *lines[:5]) if line}) <= 5


def test_the_recorder_compiles_without_a_warning() -> None:
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", *toolchain.ffi_flags()[0]]
    assert toolchain.run([toolchain.compiler().path, *flags, profiling.SOURCE]).output == ""


def test_the_limits_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 0 < profiling.bandwidth() < np.inf
    assert profiling.peak("int32") is profiling.peak("") is None


def test_the_triad_computes_what_it_says() -> None:
    loop = StreamTriad()
    loop()
    a, b, c = (tensor.numpy() for tensor in loop._arrays)
    np.testing.assert_array_equal(c, a + 2 * b)
    assert loop.bytes == a.nbytes + b.nbytes + c.nbytes
