"""What this machine has, and which targets it can run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm

import tvmlab
from tests.oracles.models import array, dense, said
from tvmlab.errors import TargetError
from tvmlab.support import host

AARCH64 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}
# No machine has AMD's XOP and Intel's AMX at once, so one of these two is always missing.
BEYOND = {"kind": "llvm", "mattr": ["+xop", "+amx-tile"]}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A stand-in for /sys: (package, core) of each processor, and a container's quota."""

    def pretend(cores: list[tuple[int, int] | None], quota: str | None = None) -> None:
        for cpu, place in enumerate(cores):
            if place is not None:
                topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
                write(topology / "physical_package_id", f"{place[0]}\n")
                write(topology / "core_id", f"{place[1]}\n")
        if quota is not None:
            write(tmp_path / "fs/cgroup/cpu.max", quota)
        monkeypatch.setattr(host, "PROCESSORS", tuple(range(len(cores))))
        monkeypatch.setattr(host, "Path", lambda path: tmp_path / str(path).removeprefix("/sys/"))

    return pretend


TWO_BY_TWO: list[tuple[int, int] | None] = [(0, 0), (0, 1), (0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("cores", "quota", "count"),
    [
        (TWO_BY_TWO, None, 2),  # hyperthreads count once
        ([(0, 0), (0, 1), (1, 0), (1, 1)], None, 4),  # equal core numbers in two packages do not
        ([None, None, None], None, 3),  # no topology: every processor counts
        (TWO_BY_TWO, "max 100000\n", 2),
        (TWO_BY_TWO, "100000 100000\n", 1),
        (TWO_BY_TWO, "150000 100000\n", 2),  # a part of a core is worth a thread
        (TWO_BY_TWO, "1000 100000\n", 1),  # never none
    ],
)
def test_physical_cores(
    machine: Callable[..., None],
    cores: list[tuple[int, int] | None],
    quota: str | None,
    count: int,
) -> None:
    machine(cores, quota)
    assert host.physical_cores() == count


def test_host_target_describes_this_machine() -> None:
    target = tvmlab.host_target()
    assert target.kind.name == "llvm"
    assert str(target.attrs["mcpu"]) == str(tvm.get_global_func("target.llvm_get_system_cpu")())
    assert int(target.attrs["num-cores"]) == int(os.environ["TVM_NUM_THREADS"])
    assert host.runtime_threads() == tvm.get_global_func("runtime.NumThreads")()
    assert host.missing_features(target) == ""


# The pool starts once in a process, and `import tvm` takes seconds: one process imports it, and
# forks before the pool starts.
COUNT = """
import os, sys, warnings
import tvm, tvmlab
threads = tvm.get_global_func("runtime.NumThreads")
CASES = {
    "unset": {}, "one": {"TVM": "1"}, "three": {"TVM": "3"}, "word": {"TVM": "x"},
    "zero": {"TVM": "0"}, "early": {"TVM": "1"}, "omp list": {"OMP": "1,4"},
    "both": {"TVM": "1", "OMP": "3"},
}
for case, variables in CASES.items():
    if os.fork():
        os.wait()
        continue
    os.environ.update({f"{name}_NUM_THREADS": value for name, value in variables.items()})
    if case == "early":
        threads()
        os.environ["TVM_NUM_THREADS"] = "2"
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
    """What `host_target` does in processes whose pool has not started, by the variables' values."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    run = subprocess.run(
        [sys.executable, "-c", COUNT], env=clean, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split("|") for line in run.stdout.splitlines()]
    return {case: line for case, *line in lines}


def test_the_users_number_of_threads_wins(threads_of: dict[str, list[str]]) -> None:
    cores = str(host.physical_cores())
    assert threads_of["unset"] == [cores, cores, cores]
    for case in ("one", "omp list", "both"):
        assert threads_of[case] == ["1", "1", "1"]
    # TVM's pool never has more threads than processors: a target that says so would mislead.
    here = str(min(3, len(host.PROCESSORS)))
    assert threads_of["three"] == [here, here, "3"]


def test_a_wrong_number_of_threads_is_refused(threads_of: dict[str, list[str]]) -> None:
    for case, text in {"word": "x", "zero": "0"}.items():
        what, where, fix = threads_of[case]
        assert what == f"TVM_NUM_THREADS is {text!r}, not a positive number"
        assert (where, fix.split(",")[0]) == ("the environment", "unset it")


def test_a_pool_that_started_too_small_is_warned_about(threads_of: dict[str, list[str]]) -> None:
    if len(host.PROCESSORS) < 2:
        pytest.skip("a second processor: a pool cannot be too small on one")
    cores, threads, _, warning = threads_of["early"]
    assert (cores, threads) == ("2", "1")
    assert warning.startswith("TVM's thread pool had already started with 1 of 2 threads")


@pytest.mark.parametrize("beyond", [BEYOND, AARCH64], ids=["x86", "aarch64"])
def test_what_this_machine_cannot_run_is_refused(beyond: dict[str, object]) -> None:
    if host.abilities().triple.startswith("aarch64"):
        pytest.skip("this machine is an aarch64: the test asks for x86-64")
    executable = tvmlab.compile(tvmlab.load(dense()), beyond)
    for use in (executable, executable.time):
        with pytest.raises(TargetError, match="this machine cannot run the module") as caught:
            use(array(2, 4))
        assert "compile without a target" in said(caught.value)


def test_missing_features_names_instruction_sets_not_tunings() -> None:
    absent = host.missing_features(tvm.target.Target(BEYOND))
    assert set(absent.split(", ")) & {"xop", "amx-tile"}
    assert host.missing_features(tvm.target.Target(AARCH64)) == "a processor of aarch64-linux-gnu"
    assert host.missing_features(tvm.target.Target("llvm")) == ""
    assert host.missing_features(tvm.target.Target("nvidia/nvidia-a100")) == ""


def test_abilities_cross_processes_and_say_why_a_target_is_unsupported() -> None:
    here = host.abilities()
    assert here.cpu
    assert here.why_unsupported(tvmlab.host_target()) == ""
    arm = tvm.target.Target({**AARCH64, "num-cores": 4})
    x86 = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 1})
    other = host.Abilities("Some", "aarch64-unknown-linux-gnu", ("neon", "fp-armv8"), 4)
    assert "aes" in other.why_unsupported(arm)
    assert "a processor of x86_64" in other.why_unsupported(x86)
    plain = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    assert other.why_unsupported(tvm.target.Target({**plain, "num-cores": 4})) == ""
    assert other.why_unsupported(tvm.target.Target({**plain, "num-cores": 5})) == (
        "the target's num-cores is 5, but the machine has 4 processors"
    )
