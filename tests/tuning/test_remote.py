"""Measuring on other machines: a real tracker and real servers on this one."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from tests.runtime import servers as farms
from tests.runtime.servers import KEY, Running
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import RemoteError, TargetError, TuningError
from tvmlab.runtime.tracker import Tracker
from tvmlab.support.host import processor_name
from tvmlab.tuning import measurers
from tvmlab.tuning.kernels import fingerprint, inputs
from tvmlab.tuning.measure import Measure, Outcome
from tvmlab.tuning.measurers import RemoteMeasurer, _Servers

QUICK = Measure(repeat=2, timeout=5.0)
TWO = [kernels.adds(1.0), kernels.adds(2.0)]


@pytest.fixture(scope="module")
def farm() -> Iterator[tuple[str, list[Running]]]:
    with farms.farm(2) as made:
        yield made


@pytest.fixture(scope="module")
def measurer(farm: tuple[str, list[Running]]) -> Iterator[RemoteMeasurer]:
    with RemoteMeasurer(host_target(), QUICK, tracker=farm[0], key=KEY, workers=2) as made:
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
    go, ports, most = RemoteMeasurer._go, set[int](), 0

    def watch(self: RemoteMeasurer, batch: Any, server: tuple[str, int, str]) -> None:
        nonlocal most
        go(self, batch, server)
        ports.add(server[1])
        most = max(most, len(batch.running))

    monkeypatch.setattr(RemoteMeasurer, "_go", watch)
    found = dict(measurer.measure([kernels.adds(float(number)) for number in range(6)]))
    assert sorted(found) == list(range(6))
    assert all(good(outcome) for outcome in found.values())
    assert len(ports) == most == 2


def test_a_duel(measurer: RemoteMeasurer) -> None:
    first, bad, second = measurer.duel(
        [kernels.adds(1.0), kernels.ForDevices, kernels.adds(2.0)], 5
    )
    assert good(first, 5)
    assert good(second, 5)
    assert first.answer != second.answer
    assert first.cpu == second.cpu == processor_name()
    assert "cannot be compiled" in bad.error
    failed, _ = measurer.duel([kernels.adds(1.0), kernels.Outside], 2)
    assert "cannot be run: the kernel ended its process with SIGSEGV" in failed.error
    assert "cannot be compiled" in measurer.duel([kernels.ForDevices], 2)[0].error


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
    with RemoteMeasurer(target, QUICK, tracker=farm[0], key=KEY, workers=1) as measurer:
        with (
            pytest.raises(TargetError, match=f"can run what is (.|\n)*{why}(.|\n)*to do: tune"),
            pytest.warns(RuntimeWarning, match="is left out") as warned,
        ):
            list(measurer.measure(TWO))
        assert len(warned) == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # each is warned of once
            for outcome in measurer.duel(TWO, 2):
                assert "The duel failed: No server" in outcome.error
                assert why in outcome.error
    assert Tracker(farm[0], KEY).servers() == 2  # those that are left out are free again


@pytest.mark.full
def test_a_server_of_tvm_itself_is_taken_as_it_is() -> None:
    with farms.farm(0) as (address, _), farms.upstream(address):
        how = Measure(repeat=2, timeout=10.0)
        with RemoteMeasurer(CROWD, how, tracker=address, key=KEY, workers=1) as measurer:
            found = [outcome for _, outcome in measurer.measure(TWO)]
        assert all(good(outcome) for outcome in found)
        assert {outcome.cpu for outcome in found} == {""}


def test_given_up_in_the_middle(measurer: RemoteMeasurer) -> None:
    found = measurer.measure([kernels.adds(1.0), kernels.Endless, kernels.Endless])
    next(found)  # which one it is depends on what is compiled first
    found.close()
    ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
    assert good(outcome)


@pytest.mark.full
def test_one_hangs_one_is_lost_one_comes_and_then_the_tracker_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measurers, "SLACK_SECONDS", 1.0)
    late: list[Running] = []
    with (
        farms.farm(3) as (address, (hangs, lost, _stays, tracker)),
        RemoteMeasurer(host_target(), QUICK, tracker=address, key=KEY, workers=2) as measurer,
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
        with pytest.raises(TuningError, match="does not answer"):
            list(rest)
        assert ["tracker does not answer" in o.error for o in measurer.duel(TWO, 2)] == [True] * 2
        late[0].end()


def test_all_servers_are_taken(measurer: RemoteMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Servers, "request", lambda *_: None)
    monkeypatch.setattr(measurers, "PATIENCE_SECONDS", 0.3)
    with pytest.raises(TuningError, match="All servers are taken"):
        list(measurer.measure([kernels.adds(1.0)]))
    assert "cannot be compiled" in measurer.duel([kernels.ForDevices], 2)[0].error
    assert "The duel failed: All servers are taken" in measurer.duel(TWO, 2)[0].error


def test_no_server_of_the_key(farm: tuple[str, list[Running]]) -> None:
    with pytest.raises(TuningError, match=f"only of '{KEY}'(.|\n)*tvmlab rpc-server --key other"):
        RemoteMeasurer(host_target(), tracker=farm[0], key="other")


def test_a_tracker_that_is_not_there() -> None:
    """It is tuning that cannot start, whatever the tracker's client raises."""
    with pytest.raises(TuningError, match="host and its port"):
        RemoteMeasurer(host_target(), tracker="nowhere", key=KEY)
    for ask in (_Servers.expect, _Servers.servers, lambda servers: servers.request(1.0)):
        with pytest.raises(TuningError, match="does not answer") as caught:
            ask(_Servers("127.0.0.1:1", KEY))
        assert isinstance(caught.value.__cause__, RemoteError)
