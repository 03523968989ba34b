"""Measuring on this machine: batches, what goes wrong in them, duels, and processes that end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tvm

from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import TargetError, TuningError
from tvmlab.tuning import forks, measurers
from tvmlab.tuning.measure import Measure, Outcome
from tvmlab.tuning.measurers import LocalMeasurer

QUICK = Measure(repeat=2, timeout=5.0)
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(host_target(), QUICK, workers=2) as made:
        yield made


def workers() -> set[int]:
    """The processes that this one has started."""
    return {child.pid for child in psutil.Process().children()}


@pytest.fixture
def others() -> set[int]:
    """Those that were there before the test."""
    return workers()


def child_of(pid: int, seconds: float = 60.0) -> int:
    """Wait until a process has a child."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if children := psutil.Process(pid).children():
            return int(children[0].pid)
        time.sleep(0.02)
    raise AssertionError("it starts no process")


def kernel_of(server: int) -> int:
    """Wait until a server of processes has a kernel that runs."""
    while True:
        with contextlib.suppress(AssertionError, psutil.NoSuchProcess):
            kernel = child_of(child_of(server), 1.0)
            if psutil.Process(kernel).cpu_times().user > 0.5:
                return kernel


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends in this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def good(outcome: Outcome, samples: int = 2) -> bool:
    return len(outcome.times) == samples and not outcome.error and len(outcome.answer) == 2


def test_a_batch_with_all_that_goes_wrong(measurer: LocalMeasurer, others: set[int]) -> None:
    whys = {
        1: "SIGSEGV: it reached outside of its tensors",
        2: "compiled: .*not impl",
        3: "longer than 5 s",
        5: "SIGABRT",
        7: "exit code 0",
        8: "tensor of a known shape",
    }
    batch = [
        kernels.adds(1.0),
        kernels.Outside,
        kernels.ForDevices,
        kernels.Endless,
        kernels.adds(2.0),
        kernels.Aborts,
        kernels.adds(1.0),
        kernels.Leaves,
        kernels.without_size(),
        kernels.Speaks,
    ]
    found = dict(measurer.measure(batch))
    assert sorted(found) == list(range(len(batch)))
    assert [place for place in sorted(found) if good(found[place])] == [0, 4, 6, 9]
    assert found[0].answer == found[6].answer != found[4].answer
    for place, why in whys.items():
        assert not found[place].times
        assert re.search(why, found[place].error)
    assert not workers() - others  # the crashes ended no process of ours
    assert list(measurer.measure([])) == []


def test_each_outcome_is_told_at_once(measurer: LocalMeasurer) -> None:
    found = measurer.measure([kernels.adds(1.0), kernels.Endless])
    place, outcome = next(found)
    assert place == 0
    assert good(outcome)
    found.close()  # given up
    assert [place for place, _ in measurer.measure([kernels.adds(1.0)] * 3)] == [0, 1, 2]


def test_a_compiler_that_takes_too_long_takes_no_other_kernel_along() -> None:
    batch = [kernels.adds(1.0), kernels.adds(2.0), kernels.Long, kernels.adds(3.0)]
    with LocalMeasurer(host_target(), Measure(repeat=2, build_timeout=5.0), workers=1) as measurer:
        found = dict(measurer.measure(batch))
    assert "compiled: it took longer than 5 s" in found[2].error
    assert [place for place in sorted(found) if good(found[place])] == [0, 1, 3]


def test_a_server_of_processes_that_is_lost_while_it_measures(others: set[int]) -> None:
    ended: list[int] = []
    with LocalMeasurer(host_target(), Measure(repeat=2, timeout=60), workers=1) as measurer:
        (server,) = workers() - others
        found = measurer.measure([kernels.adds(1.0), kernels.Endless, kernels.adds(2.0)])
        assert good(next(found)[1])

        def kill_servers() -> None:
            # The kernel is tried again by another server, as often as a server can be lost.
            for _ in range(measurers._LOSSES):
                (one,) = workers() - others - set(ended)
                ended.extend([one, kernel_of(one)])
                os.kill(one, signal.SIGKILL)
                while not workers() - others - set(ended):
                    time.sleep(0.02)

        killer = threading.Thread(target=kill_servers)
        killer.start()
        left = dict(found)
        killer.join()
        assert good(left[2])
        assert "its process was lost" in left[1].error
        assert all(map(gone, ended))  # kernels end with their server
        assert server in ended


@pytest.mark.full
def test_ctrl_c_and_then_again(others: set[int]) -> None:
    with LocalMeasurer(host_target(), Measure(repeat=2, timeout=60), workers=2) as measurer:
        mine = workers() - others
        for batch in ([kernels.Endless], [kernels.Long, kernels.Long, kernels.Long]):
            interrupt = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                list(measurer.measure(batch))
            (server,) = mine & workers()
            kernels_left = psutil.Process(server).children(recursive=True)
            assert psutil.wait_procs(kernels_left, timeout=60)[1] == []
        ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
        assert good(outcome)


def test_a_duel(measurer: LocalMeasurer) -> None:
    one, bad, two = measurer.duel([kernels.adds(1.0), kernels.ForDevices, kernels.adds(2.0)], 5)
    assert good(one, 5)
    assert good(two, 5)
    assert one.answer != two.answer
    assert "cannot be compiled" in bad.error
    found = measurer.duel([kernels.adds(1.0), kernels.Outside, kernels.ForDevices], 2)
    assert ["SIGSEGV" in outcome.error for outcome in found] == [True, True, False]
    assert "compiled" in found[2].error


def test_close_ends_all(others: set[int]) -> None:
    measurer = LocalMeasurer(host_target(), workers=2)
    mine = workers() - others
    assert len(mine) == 1
    measurer.close()
    measurer.close()
    assert not mine & workers()
    with pytest.raises(ValueError, match="closed"):
        list(measurer.measure([kernels.adds(1.0)]))


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2}, "lacks"),
        ({"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-fp8"], "num-cores": 2}, "amx"),
        ({"kind": "cuda", "arch": "sm_80"}, "not on cuda"),
        ({"kind": "llvm", "num-cores": 5000}, r"num-cores is 5000, and it(.|\n)*host_target"),
    ],
)
def test_a_target_that_cannot_run_here(
    target: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurers, "Forks", None)  # nothing is started
    with pytest.raises(TargetError, match=why):
        LocalMeasurer(tvm.target.Target(target))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("number", "repeat") for value in (True, "1", 1.5, 0)],
        *[("min_repeat_ms", value) for value in (None, -1)],
        *[(name, value) for name in ("timeout", "build_timeout") for value in (0, float("nan"))],
        *[("cache_flush", value) for value in (1, None)],
    ],
)
def test_how_nothing_can_be_measured(name: str, value: object) -> None:
    with pytest.raises(TuningError, match=re.escape(f"{name} is {value!r}, not ")) as caught:
        Measure(**{name: value})  # type: ignore[arg-type]
    assert caught.value.fix


# The processes.


def test_a_worker_imports_little_and_has_a_limit_of_memory(
    others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurers, "main_memory", lambda: 2 << 30)
    with LocalMeasurer(host_target(), QUICK, workers=1) as measurer:
        (worker,) = workers() - others
        found = dict(measurer.measure([kernels.adds(1.0, size=1 << 29), kernels.adds(1.0)]))
        assert re.search(r"alloc|memory|Memory", found[0].error)
        assert good(found[1])
        mapped = Path(f"/proc/{worker}/maps").read_text()
        assert "libtvm_compiler" in mapped
        assert not any(name in mapped for name in ("torch", "onnx", "matplotlib"))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('no tvm here')", r"cannot start(.|\n)*exit code 1(.|\n)*no tvm"),
        ("import time; time.sleep(600)", r"was not ready after 1 s"),
    ],
)
def test_workers_that_cannot_start(code: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_START", code)
    monkeypatch.setattr(forks, "START_SECONDS", 1.0 if "sleep" in code else 60.0)
    with LocalMeasurer(host_target(), workers=1) as measurer, pytest.raises(TuningError, match=why):
        list(measurer.measure([kernels.adds(1.0)]))


PARENT = """
import sys, threading, time
sys.modules["torch"] = None
sys.path.insert(0, sys.argv[1])
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.tuning.measure import Measure
from tvmlab.tuning.measurers import LocalMeasurer

def start():
    with LocalMeasurer(host_target(), Measure(timeout=300), workers=1) as measurer:
        list(measurer.measure([kernels.Endless]))

if sys.argv[2] == "thread":
    threading.Thread(target=start, daemon=True).start()
    time.sleep(600)
start()
"""


@pytest.mark.parametrize("where", ["main", pytest.param("thread", marks=pytest.mark.full)])
def test_workers_and_their_kernels_end_with_the_parent(where: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, ROOT, where])
    worker = child_of(parent.pid)
    kernel = child_of(worker)
    parent.kill()
    parent.wait()
    assert gone(worker)
    assert gone(kernel)
