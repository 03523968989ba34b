"""Measuring on this machine: batches, what goes wrong in them, and duels."""

from __future__ import annotations

import math
import os
import re
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import tvm

from tests.short import long
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import TargetError, TuningError
from tvmlab.support.target import usable_processors
from tvmlab.tuning.measure import Measure, Outcome
from tvmlab.tuning.measuring import local
from tvmlab.tuning.measuring import process as process_module
from tvmlab.tuning.measuring.local import LocalMeasurer, duel_seconds
from tvmlab.tuning.measuring.process import KernelError, Process, WorkerLost

QUICK = Measure(repeat=2, timeout=10.0)  # other tests want the processors, too


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


def good(outcome: Outcome, samples: int = 2) -> bool:
    return len(outcome.times) == samples and not outcome.error and len(outcome.answer) == 2


def test_a_batch_with_all_that_goes_wrong(measurer: LocalMeasurer) -> None:
    batch = [
        kernels.adds(1.0),
        kernels.Outside,
        kernels.ForDevices,
        kernels.Endless,
        kernels.adds(2.0),
        kernels.Aborts,
        kernels.adds(1.0),
    ]
    found = dict(measurer.measure(batch))
    assert sorted(found) == list(range(len(batch)))
    assert [place for place in found if good(found[place])] == [0, 4, 6]
    assert found[0].answer == found[6].answer != found[4].answer
    for place, why in ((1, "SIGSEGV"), (2, "compiled: .*not impl"), (3, "10 s"), (5, "SIGABRT")):
        assert not found[place].times
        assert re.search(why, found[place].error)


def test_each_outcome_is_told_at_once(measurer: LocalMeasurer) -> None:
    found = measurer.measure([kernels.adds(1.0), kernels.Endless])
    place, outcome = next(found)
    assert place == 0
    assert good(outcome)
    found.close()  # given up
    assert [place for place, _ in measurer.measure([kernels.adds(1.0)] * 3)] == [0, 1, 2]


def test_nothing_to_measure(measurer: LocalMeasurer) -> None:
    assert list(measurer.measure([])) == []


def test_kernels_are_measured_one_at_a_time(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[str] = []
    ask = Process.ask

    def watched(self: Process, op: str, **how: object) -> object:
        busy.append(op)
        if op == "measure":
            assert busy == ["measure"]
        try:
            return ask(self, op, **how)  # type: ignore[arg-type]
        finally:
            busy.remove(op)

    monkeypatch.setattr(Process, "ask", watched)
    found = list(measurer.measure([kernels.adds(float(number)) for number in range(6)]))
    assert all(good(outcome) for _, outcome in found)


def test_a_compiler_that_takes_too_long_takes_no_other_kernel_along(others: set[int]) -> None:
    batch = [kernels.adds(1.0), kernels.adds(2.0), kernels.Long, kernels.adds(3.0)]
    with LocalMeasurer(host_target(), Measure(repeat=2, build_timeout=10.0), workers=1) as measurer:
        mine = workers() - others
        found = dict(measurer.measure(batch))
        assert "compiler failed: it took longer than 10 s" in found[2].error
        assert [place for place in found if good(found[place])] == [0, 1, 3]
        assert not mine & workers()  # it was replaced


def test_a_worker_that_is_lost_while_it_measures(others: set[int]) -> None:
    with LocalMeasurer(host_target(), Measure(repeat=2, timeout=60), workers=1) as measurer:
        (worker,) = workers() - others
        found = measurer.measure([kernels.Endless, kernels.adds(1.0)])

        def kill() -> None:
            while not psutil.Process(worker).children():
                time.sleep(0.02)
            os.kill(worker, signal.SIGKILL)

        threading.Thread(target=kill).start()
        place, outcome = next(found)
        assert (place, outcome.times) == (0, ())
        assert "ended by SIGKILL" in outcome.error
        ((place, outcome),) = found  # compiled again by another
        assert place == 1
        assert good(outcome)


@long
def test_ctrl_c_and_then_again(others: set[int]) -> None:
    with LocalMeasurer(host_target(), Measure(repeat=2, timeout=60), workers=2) as measurer:
        mine = workers() - others
        for batch in ([kernels.Endless], [kernels.Long, kernels.Long, kernels.Long]):
            interrupt = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                list(measurer.measure(batch))
        assert not mine & workers()
        ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
        assert good(outcome)


def test_a_duel(measurer: LocalMeasurer) -> None:
    first, bad, second = measurer.duel(
        [kernels.adds(1.0), kernels.ForDevices, kernels.adds(2.0)], 5
    )
    assert good(first, 5)
    assert good(second, 5)
    assert first.answer != second.answer
    assert "cannot be compiled" in bad.error


def test_a_duel_that_fails(measurer: LocalMeasurer) -> None:
    found = measurer.duel([kernels.adds(1.0), kernels.Outside, kernels.ForDevices], 2)
    assert ["SIGSEGV" in outcome.error for outcome in found] == [True, True, False]
    assert "compiled" in found[2].error
    assert "compiled" in measurer.duel([kernels.ForDevices], 2)[0].error


def test_a_duel_may_take_as_long_as_its_kernels() -> None:
    assert duel_seconds(Measure(repeat=8, timeout=10), 2, 24) == 60
    assert duel_seconds(Measure(repeat=8, timeout=10), 2, 2) == 20


def test_close_ends_all(others: set[int]) -> None:
    measurer = LocalMeasurer(host_target(), workers=2)
    mine = workers() - others
    assert len(mine) == 2
    measurer.close()
    measurer.close()
    assert not mine & workers()
    with pytest.raises(ValueError, match="closed"):
        list(measurer.measure([kernels.adds(1.0)]))


def test_as_many_workers_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[int, int]] = []

    class Fake:
        def __init__(self, threads: int, memory: int) -> None:
            started.append((threads, memory))

        def kill(self) -> None: ...

    monkeypatch.setattr(local, "Process", Fake)
    monkeypatch.setattr(local, "physical_cores", lambda: 3)
    monkeypatch.setattr(local, "main_memory", lambda: 30 << 30)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    LocalMeasurer(target).close()
    assert started == [(1, 8 << 30)] * 3
    started.clear()
    monkeypatch.setattr(local, "main_memory", lambda: 3 << 30)
    LocalMeasurer(tvm.target.Target("llvm"), workers=2).close()
    assert started == [(3, 2 << 30)] * 2


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2}, "lacks"),
        ({"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-fp8"], "num-cores": 2}, "amx"),
        ({"kind": "cuda", "arch": "sm_80"}, "not on cuda"),
        (
            {"kind": "llvm", "num-cores": 5000},
            rf"num-cores is 5000, and it has {usable_processors()} processor(.|\n)*host_target",
        ),
    ],
)
def test_a_target_that_cannot_run_here(
    target: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "Process", None)  # nothing is started
    with pytest.raises(TargetError, match=why):
        LocalMeasurer(tvm.target.Target(target))


def test_as_many_threads_as_logical_processors() -> None:
    target = tvm.target.Target({"kind": "llvm", "num-cores": usable_processors()})
    with LocalMeasurer(target, QUICK, workers=1) as measurer:
        ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
        assert good(outcome)
        assert outcome.cpu == ""
        assert measurer.options is QUICK


NO_NUMBERS = [True, "1", None, 1.5]
NO_SECONDS = [True, "1", None, 0, -1.0, math.inf, math.nan]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("number", "repeat") for value in [*NO_NUMBERS, 0, -1]],
        *[("min_repeat_ms", value) for value in [*NO_NUMBERS, -1]],
        *[(name, value) for name in ("timeout", "build_timeout") for value in NO_SECONDS],
        *[("cache_flush", value) for value in (1, None, "no")],
    ],
)
def test_how_nothing_can_be_measured(name: str, value: object) -> None:
    with pytest.raises(TuningError, match=re.escape(f"{name} is {value!r}, not ")) as caught:
        Measure(**{name: value})  # type: ignore[arg-type]
    assert caught.value.where == f"Measure({name}={value!r})"
    assert caught.value.fix


def test_the_least_that_can_be_measured_with() -> None:
    made = Measure(1, 1, 0, 1, 0.1, False)
    assert (made.timeout, made.build_timeout) == (1, 0.1)
    assert Measure().build_timeout == 10.0


def test_workers_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "command", lambda *_: ["/bin/sh", "-c", "echo why >&2"])
    with (
        LocalMeasurer(host_target(), workers=2) as measurer,
        pytest.raises(TuningError, match="why"),
    ):
        list(measurer.measure([kernels.adds(1.0)]))


def test_the_errors_of_workers_are_words() -> None:
    assert str(KernelError("why")) == str(WorkerLost("why")) == "why"
    assert not KernelError("why").late
