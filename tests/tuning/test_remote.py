"""Measuring on other machines: a real tracker and real servers on this one."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm

from tests.runtime import servers as farms
from tests.runtime.servers import KEY, Running
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import RemoteError, TargetError
from tvmlab.runtime.tracker import Tracker
from tvmlab.support.host import processor_name
from tvmlab.tuning import measurers
from tvmlab.tuning.kernels import Measure, Outcome, fingerprint, inputs
from tvmlab.tuning.measurers import KernelProcess, RemoteMeasurer

QUICK = Measure(repeat=2, timeout=5.0)
TWO = [kernels.adds(1.0), kernels.adds(2.0)]


@pytest.fixture(scope="module")
def farm() -> Iterator[tuple[str, list[Running]]]:
    with farms.farm(2) as made:
        yield made


@pytest.fixture(scope="module")
def measurer(farm: tuple[str, list[Running]]) -> Iterator[RemoteMeasurer]:
    with RemoteMeasurer(host_target(), QUICK, tracker=farm[0], key=KEY) as made:
        yield made


def good(outcome: Outcome, samples: int = 2) -> bool:
    return len(outcome.times) == samples and not outcome.error and len(outcome.answer) == 2


def test_a_batch_with_all_that_goes_wrong(measurer: RemoteMeasurer) -> None:
    batch = [
        kernels.adds(1.0),
        kernels.Outside,
        kernels.ForDevices,
        kernels.Endless,
        kernels.adds(2.0),
    ]
    found = dict(measurer.measure(batch))
    assert [place for place in sorted(found) if good(found[place])] == [0, 4]
    assert "cannot be run: the kernel ended its process with SIGSEGV" in found[1].error
    assert "cannot be compiled" in found[2].error
    assert "cannot be run: it ran for longer than 5 s" in found[3].error
    assert not list(Path(measurer._folder).iterdir())
    (x,) = inputs((((kernels.SIZE,), "float32"),), ())
    assert found[0].answer == pytest.approx(tuple(fingerprint([x + np.float32(1)])))
    assert found[0].cpu == processor_name()
    assert measurer.options is QUICK


def test_several_servers_at_once(measurer: RemoteMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, calls, servers = KernelProcess.measured, itertools.count(), set[int]()
    both = threading.Barrier(2, timeout=300)

    def watch(self: KernelProcess, server: tuple[str, int, str], slack: float) -> list[Outcome]:
        servers.add(server[1])
        if next(calls) < 2:
            both.wait()  # fails if the second measurement only begins after the first one
        return measured(self, server, slack)

    monkeypatch.setattr(KernelProcess, "measured", watch)
    found = dict(measurer.measure([kernels.adds(float(number)) for number in range(6)]))
    assert sorted(found) == list(range(6))
    assert all(good(outcome) for outcome in found.values())
    assert len(servers) == 2


# No machine has AMD's XOP and Intel's AMX at once.
BEYOND = tvm.target.Target({"kind": "llvm", "mattr": ["+xop", "+amx-tile"], "num-cores": 1})
CROWD = tvm.target.Target({"kind": "llvm", "num-cores": 5000})


@pytest.mark.parametrize(
    ("target", "why"),
    [(BEYOND, "it lacks "), pytest.param(CROWD, "num-cores is 5000", marks=pytest.mark.full)],
)
def test_servers_that_cannot_run_the_target(
    target: tvm.target.Target, why: str, farm: tuple[str, list[Running]]
) -> None:
    with (
        RemoteMeasurer(target, QUICK, tracker=farm[0], key=KEY) as measurer,
        pytest.raises(TargetError, match=f"cannot run code (.|\n)*{why}(.|\n)*tune for"),
    ):
        list(measurer.measure(TWO))
    assert Tracker(farm[0], KEY).servers() == 2


@pytest.mark.full
def test_a_server_of_tvm_itself_is_taken_as_it_is() -> None:
    with farms.farm(0) as (address, _), farms.upstream(address):
        how = Measure(repeat=2, timeout=10.0)
        with RemoteMeasurer(CROWD, how, tracker=address, key=KEY) as measurer:
            found = [outcome for _, outcome in measurer.measure(TWO)]
        assert all(good(outcome) for outcome in found)
        assert {outcome.cpu for outcome in found} == {""}


@pytest.mark.full
def test_one_hangs_one_is_lost_one_comes_and_then_the_tracker_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measurers, "SLACK_SECONDS", 1.0)
    late: list[Running] = []
    with (
        farms.farm(3) as (address, (hangs, lost, _stays, tracker)),
        RemoteMeasurer(host_target(), QUICK, tracker=address, key=KEY) as measurer,
    ):
        hangs.send(signal.SIGSTOP)
        batch = [kernels.adds(float(number)) for number in range(12)]
        found = {}
        for place, outcome in measurer.measure(batch):
            found[place] = outcome
            if len(found) == 2:
                lost.process.kill()
                late.append(farms.server(address))
        assert sorted(found) == list(range(12))
        assert [o.error for o in found.values() if not good(o)] == []
        rest = measurer.measure(batch)
        next(rest)
        tracker.end()
        with pytest.raises(RemoteError, match="does not answer"):
            list(rest)
        late[0].end()


def test_no_tracker_or_no_server_of_the_key(farm: tuple[str, list[Running]]) -> None:
    for address, key, why in (
        (farm[0], "other", f"only of '{KEY}'(.|\n)*tvmlab rpc-server --key other"),
        ("nowhere", KEY, "host and its port"),
        ("127.0.0.1:1", KEY, "does not answer"),
    ):
        with pytest.raises(RemoteError, match=why):
            RemoteMeasurer(host_target(), tracker=address, key=key)
