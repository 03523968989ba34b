from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

import tvmlab
from tests.oracles.models import array, dense, said
from tvmlab.errors import TargetError
from tvmlab.support import importing as _with_tvm
from tvmlab.support import target

AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A stand-in for /sys: (package, core) of each processor, and a container's quota."""

    def pretend(cores: list[tuple[int, int] | None], quota: dict[str, str] | None = None) -> None:
        for cpu, place in enumerate(cores):
            if place is not None:
                topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
                write(topology / "physical_package_id", f"{place[0]}\n")
                write(topology / "core_id", f"{place[1]}\n")
        for name, text in (quota or {}).items():
            write(tmp_path / "fs/cgroup" / name, text)
        monkeypatch.setattr(target, "_PROCESSORS", tuple(range(len(cores))))
        monkeypatch.setattr(target, "Path", lambda path: tmp_path / str(path).removeprefix("/sys/"))

    return pretend


TWO_BY_TWO: list[tuple[int, int] | None] = [(0, 0), (0, 1), (0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("cores", "quota", "count"),
    [
        (TWO_BY_TWO, {}, 2),  # hyperthreads count once
        ([(0, 0), (0, 1), (1, 0), (1, 1)], {}, 4),  # equal core numbers in two packages do not
        ([None, None, None], {}, 3),  # no topology: every processor counts
        (TWO_BY_TWO, {"cpu.max": "max 100000\n"}, 2),
        (TWO_BY_TWO, {"cpu.max": "100000 100000\n"}, 1),
        (TWO_BY_TWO, {"cpu.max": "150000 100000\n"}, 2),  # a part of a core is worth a thread
        (TWO_BY_TWO, {"cpu.max": "900000 100000\n"}, 2),  # never more than there are
        (TWO_BY_TWO, {"cpu.max": "1000 100000\n"}, 1),  # never none
        (TWO_BY_TWO, {"cpu.max": ""}, 2),
        (TWO_BY_TWO, {"cpu.max": "100000 0"}, 2),
    ],
)
def test_physical_cores(
    machine: Callable[..., None],
    cores: list[tuple[int, int] | None],
    quota: dict[str, str],
    count: int,
) -> None:
    machine(cores, quota)
    assert target.physical_cores() == count


def test_the_affinity_mask_is_heeded(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(TWO_BY_TWO)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1}, raising=False)
    assert _with_tvm.usable() == (1, 3)
    monkeypatch.setattr(target, "_PROCESSORS", _with_tvm.usable())
    assert target.physical_cores() == 1


def test_without_affinity_every_processor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert _with_tvm.usable() == (0, 1, 2, 3)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _with_tvm.usable() == (0,)


def test_host_target_describes_this_machine() -> None:
    host = tvmlab.host_target()
    assert host.kind.name == "llvm"
    assert str(host.attrs["mcpu"]) == str(tvm.get_global_func("target.llvm_get_system_cpu")())
    assert int(host.attrs["num-cores"]) == int(os.environ["TVM_NUM_THREADS"])
    assert target.missing_features(host) == ""


# The pool starts once in a process, and `import tvm` takes seconds: one process imports it, and
# forks before the pool starts.
COUNT = """
import os, sys, warnings
import tvm, tvmlab
threads = tvm.get_global_func("runtime.NumThreads")
for case in ("unset", "1", "3", "x", "early", "omp", "omp list", "both", "omp x"):
    if os.fork():
        os.wait()
        continue
    os.environ.pop("TVM_NUM_THREADS", None)
    omp = {"omp": "1", "omp list": "1,4", "both": "3", "omp x": "x"}.get(case)
    if omp:
        os.environ["OMP_NUM_THREADS"] = omp
    if case == "both":
        os.environ["TVM_NUM_THREADS"] = "1"
    if case == "early":
        os.environ["TVM_NUM_THREADS"] = "1"
        threads()
        os.environ["TVM_NUM_THREADS"] = "2"
    elif case != "unset" and not omp:
        os.environ["TVM_NUM_THREADS"] = case
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            cores = tvmlab.host_target().attrs["num-cores"]
            said = [str(w.message) for w in seen if w.category is RuntimeWarning]
            line = [cores, threads(), os.environ["TVM_NUM_THREADS"], *said]
        except tvmlab.errors.TargetError as error:
            line = [error.what, error.where, error.fix]
    print(case, *line, sep="|", flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def threads_of() -> dict[str, list[str]]:
    """What `host_target` does in processes whose pool has not started, by the variable's value."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    run = subprocess.run(
        [sys.executable, "-c", COUNT], env=clean, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split("|") for line in run.stdout.splitlines()]
    return {case: line for case, *line in lines}


def test_unset_the_pool_gets_the_physical_cores(threads_of: dict[str, list[str]]) -> None:
    cores = str(target.physical_cores())
    assert threads_of["unset"] == [cores, cores, cores]


def test_the_users_number_of_threads_wins(threads_of: dict[str, list[str]]) -> None:
    assert threads_of["1"] == ["1", "1", "1"]


def test_more_threads_than_processors_are_not_promised(threads_of: dict[str, list[str]]) -> None:
    """TVM's pool never has more: a target that says so would mislead its schedules and peers."""
    here = str(min(3, len(target._PROCESSORS)))
    assert threads_of["3"] == [here, here, "3"]


@pytest.mark.parametrize("case", ["omp", "omp list", "both"])
def test_openmps_number_serves_where_tvms_is_unset(
    threads_of: dict[str, list[str]], case: str
) -> None:
    assert threads_of[case] == ["1", "1", "1"]


@pytest.mark.parametrize(("case", "name"), [("x", "TVM"), ("omp x", "OMP")])
def test_a_number_of_threads_that_is_none_is_refused(
    threads_of: dict[str, list[str]], case: str, name: str
) -> None:
    assert threads_of[case] == [
        f"{name}_NUM_THREADS is 'x', not a positive number",
        "the environment",
        "unset it, or set it to the number of threads for TVM",
    ]


def test_a_pool_that_started_too_small_is_warned_about(threads_of: dict[str, list[str]]) -> None:
    if len(target._PROCESSORS) < 2:
        pytest.skip("a second processor: a pool cannot be too small on one")
    cores, threads, _, warning = threads_of["early"]
    assert (cores, threads) == ("2", "1")
    assert warning.startswith("TVM's thread pool had already started with 1 of 2 threads")


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", " 2", "٣x"])
def test_other_wrong_numbers_of_threads(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", text)
    with pytest.raises(TargetError, match="not a positive number") as caught:
        tvmlab.host_target()
    assert repr(text) in said(caught.value)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("llvm", "llvm"),
        ("c", "c"),
        ("nvidia/nvidia-a100", "cuda"),
        ({"kind": "llvm", "mcpu": "x86-64-v3"}, "llvm"),
        ('{"kind": "llvm"}', "llvm"),
        (tvm.target.Target("llvm"), "llvm"),
        (None, "llvm"),
        (AARCH64, "llvm"),
        ("llvm -mcpu=x86-64-v3", "llvm"),
    ],
)
def test_as_target(given: object, kind: str) -> None:
    made = target.as_target(given)  # type: ignore[arg-type]
    assert made.kind.name == kind


def test_as_target_leaves_a_target_and_a_dictionary_as_they_are() -> None:
    made = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    assert target.as_target(made) is made
    spec = dict(AARCH64)
    target.as_target(spec)
    assert spec == AARCH64


@pytest.mark.parametrize(
    "wrong",
    [
        "nonsense",
        "",
        "nvidia/no-such-gpu",
        {},
        {"mcpu": "x86-64-v3"},
        {"kind": "nonsense"},
        {"kind": "llvm", "bogus": 1},
        {"kind": "llvm", "num-cores": "many"},
        5,
        b"llvm",
        ["llvm"],
    ],
    ids=repr,
)
def test_an_unknown_target(wrong: object) -> None:
    with pytest.raises(TargetError, match="TVM does not know this target") as caught:
        tvmlab.compile(tvmlab.load(dense()), wrong)  # type: ignore[arg-type]
    assert caught.value.where == repr(wrong)
    assert "kind" in said(caught.value)
    assert caught.value.__cause__ is not None


@given(st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=8))
def test_an_unknown_kind_never_escapes_as_another_error(name: str) -> None:
    known = name in tvm.target.Target.list_kinds()
    with contextlib.nullcontext() if known else pytest.raises(TargetError, match=name):
        assert target.as_target(name).kind.name == name


@pytest.mark.parametrize(
    ("mcpu", "extra"), [("no-such-cpu", {}), ("x86-64-v3", {"mtriple": "aarch64-linux-gnu"})]
)
def test_an_unknown_processor(mcpu: str, extra: dict[str, str]) -> None:
    with pytest.raises(TargetError, match=f"LLVM does not know a processor named '{mcpu}'") as got:
        target.as_target({"kind": "llvm", "mcpu": mcpu, **extra})
    assert "leave mcpu out" in said(got.value)
    with pytest.raises(TargetError, match="does not know a processor"):
        target.as_target(tvm.target.Target({"kind": "llvm", "mcpu": mcpu, **extra}))


def test_an_unknown_triple(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):  # TVM itself reads through a null pointer, which ends the process or not
        with pytest.raises(TargetError, match="for the triple 'nonsense'") as caught:
            tvmlab.compile(tvmlab.load(dense()), {"kind": "llvm", "mtriple": "nonsense"})
        assert "mtriple" in said(caught.value)


# No machine has AMD's XOP and Intel's AMX at once, so one of these two is always missing.
BEYOND = [{"kind": "llvm", "mattr": ["+xop", "+amx-tile"]}]


@pytest.mark.parametrize("beyond", [*BEYOND, AARCH64], ids=["x86", "aarch64"])
def test_what_this_machine_cannot_run_is_refused(beyond: dict[str, object]) -> None:
    if tvm.get_global_func("target.llvm_get_system_triple")().startswith("aarch64"):
        pytest.skip("this machine is an aarch64: the test asks for x86-64")
    executable = tvmlab.compile(tvmlab.load(dense()), beyond)
    for use in (executable, executable.time):
        with pytest.raises(TargetError, match="this machine cannot run the module") as caught:
            use(array(2, 4))
        assert caught.value.where == target.spelled(executable.target)
        assert "leaving the target out" in said(caught.value)


def test_missing_features_names_instruction_sets_not_tunings() -> None:
    absent = target.missing_features(tvm.target.Target(BEYOND[0]))
    assert set(absent.split(", ")) & {"xop", "amx-tile"}
    assert target.missing_features(tvm.target.Target(AARCH64)) == (
        "a processor of aarch64-linux-gnu"
    )
    assert target.missing_features(tvm.target.Target("llvm")) == ""
    assert target.missing_features(target.as_target("nvidia/nvidia-a100")) == ""


def test_a_target_without_its_device_is_refused() -> None:
    if tvm.cuda().exist:
        pytest.skip("this machine has a CUDA device")
    executable = tvmlab.compile(tvmlab.load(dense()), "nvidia/nvidia-a100")
    with pytest.raises(TargetError, match="this machine has no cuda device") as caught:
        executable(array(2, 4))
    said(caught.value)


def test_the_least_processor_of_the_architecture_gives_the_same_numbers() -> None:
    mod = tvmlab.load(dense())
    x = array(2, 4)
    np.testing.assert_allclose(
        tvmlab.compile(mod, "llvm")(x), tvmlab.compile(mod)(x), rtol=1e-5, atol=1e-6
    )


def test_runtime_threads_is_the_size_of_the_pool() -> None:
    tvmlab.host_target()
    assert target.runtime_threads() == tvm.get_global_func("runtime.NumThreads")()
