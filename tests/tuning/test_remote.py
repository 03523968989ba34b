"""Measuring on other machines: a real tracker and three real servers on this one."""

from __future__ import annotations

import os
import queue
import signal
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tvm
from tvm.rpc.base import RPC_CODE_SUCCESS, RPC_MAGIC, recvall

from tests.runtime import servers as farms
from tests.runtime.servers import KEY, Running
from tests.short import long
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import TargetError, ToolchainError, TuningError
from tvmlab.runtime.tracker import Tracker
from tvmlab.support.target import Abilities, abilities, processor_name, usable_processors
from tvmlab.tuning.measure import Measure, Outcome
from tvmlab.tuning.measuring import remote_batch
from tvmlab.tuning.measuring.local import LocalMeasurer
from tvmlab.tuning.measuring.remote import RemoteMeasurer, linker
from tvmlab.tuning.search.answers import same_answer

PATIENT = Measure(repeat=2, timeout=100.0)
QUICK = Measure(repeat=2, timeout=10.0)  # other tests want the processors, too
TWO = [kernels.adds(1.0), kernels.adds(2.0)]


@pytest.fixture(scope="module")
def farm() -> Iterator[tuple[str, list[Running]]]:
    with farms.farm(3) as made:
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
    assert "cannot be run: it ran for longer than 10 s" in found[3].error
    assert not list(Path(measurer._folder.name).iterdir())
    with LocalMeasurer(host_target(), QUICK, workers=1) as local:
        ((_, here),) = local.measure([batch[0]])
    assert found[0].answer == pytest.approx(here.answer)
    assert found[0].cpu == processor_name()
    assert here.cpu == ""
    assert measurer.options is QUICK


def test_several_servers_at_once(measurer: RemoteMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    run, meeting = remote_batch.Seats.run, threading.Barrier(3)

    def met(self: remote_batch.Seats, server: tuple[str, int, str], *rest: object) -> object:
        ports.add(server[1])
        meeting.wait(300)  # only where three are measured at once
        return run(self, server, *rest)  # type: ignore[arg-type]

    ports: set[int] = set()
    monkeypatch.setattr(remote_batch.Seats, "run", met)
    found = dict(measurer.measure([kernels.adds(float(number)) for number in range(6)]))
    assert sorted(found) == list(range(6))
    assert all(good(outcome) for outcome in found.values())
    assert len(ports) == 3


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
    assert "The duel failed: the kernel ended its process with SIGSEGV" in failed.error
    assert "cannot be compiled" in measurer.duel([kernels.ForDevices], 2)[0].error


def test_a_kernel_that_leaves_half_of_its_output(measurer: RemoteMeasurer) -> None:
    found = dict(measurer.measure([kernels.Counts, kernels.CountsHalf]))
    assert good(found[0])
    assert good(found[1])
    assert not same_answer(found[0].answer, found[1].answer, [0.0])


# No machine has AMD's XOP and Intel's AMX at once.
BEYOND = tvm.target.Target({"kind": "llvm", "mattr": ["+xop", "+amx-tile"], "num-cores": 1})
CROWD = tvm.target.Target({"kind": "llvm", "num-cores": 5000})


@pytest.mark.parametrize(("target", "why"), [(BEYOND, "it lacks "), (CROWD, "num-cores is 5000")])
@pytest.mark.parametrize("first", ["measure", pytest.param("duel", marks=long)])
def test_servers_that_cannot_run_the_target(
    target: tvm.target.Target, why: str, first: str, farm: tuple[str, list[Running]]
) -> None:
    with RemoteMeasurer(target, QUICK, tracker=farm[0], key=KEY, workers=1) as measurer:

        def measured() -> None:
            with pytest.raises(
                TargetError, match=f"can run what is (.|\n)*{why}(.|\n)*to do: tune"
            ):
                list(measurer.measure(TWO))

        def fought() -> None:
            for outcome in measurer.duel(TWO, 2):
                assert "The duel failed: No server" in outcome.error
                assert why in outcome.error

        uses = [measured, fought] if first == "measure" else [fought, measured]
        with pytest.warns(RuntimeWarning, match="is left out") as warned:
            uses[0]()
        assert len(warned) == 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # each is warned of once
            uses[1]()


@long
@pytest.mark.skipif(usable_processors() < 2, reason="this machine has one processor")
def test_servers_of_two_kinds() -> None:
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    with farms.farm(1) as (address, (able, _)):
        small = farms.server_of_one_processor(address)
        try:
            farms.known(small)
            with RemoteMeasurer(target, QUICK, tracker=address, key=KEY, workers=1) as measurer:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    for _ in range(3):
                        found = dict(measurer.measure(TWO * 3))
                        assert all(good(outcome) for outcome in found.values())
                        assert all(good(outcome, 3) for outcome in measurer.duel(TWO, 3))
                (warning,) = warned
                assert "num-cores is 2, and it has 1 processor to use" in str(warning.message)
                able.end()
                with pytest.raises((TargetError, TuningError)):
                    list(measurer.measure(TWO))
            # The small one is there for those whose target it can run.
            least = tvm.target.Target({"kind": "llvm", "num-cores": 1})
            with RemoteMeasurer(least, QUICK, tracker=address, key=KEY, workers=1) as measurer:
                assert all(good(outcome) for _, outcome in measurer.measure(TWO))
        finally:
            small.end()


@long
def test_a_server_of_tvm_itself_is_taken_as_it_is() -> None:
    with farms.farm(0) as (address, _), farms.upstream(address):
        how = Measure(repeat=2, timeout=10.0)
        with RemoteMeasurer(CROWD, how, tracker=address, key=KEY, workers=1) as measurer:
            found = [outcome for _, outcome in measurer.measure(TWO)]
        assert all(good(outcome) for outcome in found)
        assert {outcome.cpu for outcome in found} == {""}


def test_who_is_left_out_is_given_back(
    farm: tuple[str, list[Running]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker, heard = Tracker(farm[0], KEY), queue.SimpleQueue[str]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = (*server.getsockname(), "k:1")

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                magic, length = struct.unpack("<ii", recvall(connection, 8))
                assert magic == RPC_MAGIC
                heard.put(recvall(connection, length).decode())
                connection.sendall(struct.pack("<i", RPC_CODE_SUCCESS))

        threading.Thread(target=answer).start()
        handed = iter([refused, ("other", 1, "k:2")])
        monkeypatch.setattr(tracker, "_next", lambda _: next(handed))
        assert tracker.leave_out(refused, "so it is")
        assert not tracker.leave_out(refused, "so it is")
        assert tracker.request(20.0) == ("other", 1, "k:2")
        assert heard.get(timeout=300) == "client:k:1"
    assert tracker.servers() == 3  # the one that is left out is none of the tracker's


def test_what_a_machine_can_run_and_is_told() -> None:
    here = abilities()
    assert Abilities.read(here.text()) == here
    assert here.why_unsupported(host_target()) == ""
    arm = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 1})
    x86 = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 1})
    assert here.cpu
    told = Abilities("Some", "aarch64-unknown-linux-gnu", ("neon",), 2, 4)
    assert told.why_unsupported(arm) == ""
    assert "a processor of x86_64" in told.why_unsupported(x86)


def test_given_up_in_the_middle(farm: tuple[str, list[Running]]) -> None:
    with RemoteMeasurer(host_target(), PATIENT, tracker=farm[0], key=KEY, workers=2) as measurer:
        found = measurer.measure([kernels.adds(1.0), kernels.Endless, kernels.Endless])
        assert good(next(found)[1])
        found.close()
        ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
        assert good(outcome)


@long
def test_what_is_given_up_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a kernel whose turn comes when all that ran has been ended already."""
    kill, run = remote_batch.Seats.kill, remote_batch.Seats.run
    comes, killed = threading.Event(), threading.Event()
    given_up: list[str] = []

    def kills(seats: remote_batch.Seats) -> None:
        kill(seats)
        killed.set()

    def runs(seats: remote_batch.Seats, *arguments: Any) -> remote_batch.Told:
        if arguments[1][0]["path"].endswith("-0.so"):
            return run(seats, *arguments)
        comes.set()
        killed.wait(300)
        try:
            told = run(seats, *arguments)
        except TuningError as error:  # ended while it started
            given_up.append(str(error))
            raise
        given_up.append(told.why)
        return told

    monkeypatch.setattr(remote_batch.Seats, "kill", kills)
    monkeypatch.setattr(remote_batch.Seats, "run", runs)
    with (
        farms.farm(2) as (address, _),
        RemoteMeasurer(host_target(), PATIENT, tracker=address, key=KEY, workers=2) as measurer,
    ):
        found = measurer.measure([kernels.adds(1.0), kernels.Endless])
        assert good(next(found)[1])
        assert comes.wait(300)
        found.close()
        # Had the kernel been waited for, its server would have stopped it, and not we.
        (why,) = given_up
        assert "SIGKILL" in why


@long
def test_one_hangs_one_is_lost_one_comes_and_then_the_tracker_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_batch, "SLACK_SECONDS", 1.0)
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


@long
def test_a_kernel_whose_server_is_lost_is_measured_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy tracker may hand out, once more, a server that it does not know to be dead.
    monkeypatch.setattr(remote_batch, "_LOSSES", 10)
    with (
        farms.farm(2) as (address, servers),
        RemoteMeasurer(
            host_target(), Measure(repeat=2, timeout=60), tracker=address, key=KEY, workers=1
        ) as measurer,
    ):

        def kill_each_that_works() -> None:
            left = servers[:2]
            while left:
                for server in list(left):
                    if psutil.Process(server.process.pid).children():
                        time.sleep(0.1)
                        server.process.kill()
                        left.remove(server)
                time.sleep(0.02)

        killer = threading.Thread(target=kill_each_that_works, daemon=True)
        killer.start()
        # The endless one takes both servers along, one after the other; then there is none.
        with pytest.raises(TuningError, match=r"All servers are gone(.|\n)*rpc-server"):
            list(measurer.measure([kernels.Endless]))
        killer.join()
        with pytest.raises(TuningError, match="no server of the key"):
            list(measurer.measure([kernels.adds(1.0)]))


@pytest.mark.parametrize(
    ("lost", "late", "times"), [(True, False, 3), (False, True, 2), (False, False, 1)]
)
def test_how_often_a_kernel_is_tried(
    lost: bool, late: bool, times: int, measurer: RemoteMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def fails(*how: object) -> remote_batch.Told:
        tried.append(how)
        return remote_batch.Told(why="so it is", lost=lost, late=late)

    monkeypatch.setattr(remote_batch.Seats, "run", fails)
    # Nobody comes to the servers that the tracker hands out; enough of them for all tries.
    monkeypatch.setattr(Tracker, "request", lambda *_: ("127.0.0.1", 1, "k"))
    ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
    assert len(tried) == times
    assert "so it is" in outcome.error
    assert outcome.error.startswith("It cannot" if times == 1 else f"{times} servers failed")
    tried.clear()
    (outcome,) = measurer.duel([kernels.adds(1.0)], 2)
    assert len(tried) == (1 if times == 1 else 3)
    assert outcome.error == "The duel failed: so it is"


def test_all_servers_are_taken(measurer: RemoteMeasurer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracker, "request", lambda *_: None)
    monkeypatch.setattr(remote_batch, "PATIENCE_SECONDS", 1.0)
    with pytest.raises(TuningError, match="All servers are taken"):
        list(measurer.measure([kernels.adds(1.0)]))
    bad, (untried, *_) = measurer.duel([kernels.ForDevices], 2)[0], measurer.duel(TWO, 2)
    assert "cannot be compiled" in bad.error
    assert "The duel failed: no server is free" in untried.error


def test_no_server_of_the_key(farm: tuple[str, list[Running]]) -> None:
    with pytest.raises(TuningError, match=f"only of '{KEY}'(.|\n)*tvmlab rpc-server --key other"):
        RemoteMeasurer(host_target(), tracker=farm[0], key="other")


def test_close_ends_all(farm: tuple[str, list[Running]]) -> None:
    before = {child.pid for child in psutil.Process(os.getpid()).children()}
    measurer = RemoteMeasurer(host_target(), tracker=farm[0], key=KEY, workers=1)
    folder = Path(measurer._folder.name)
    measurer.close()
    measurer.close()
    assert not {child.pid for child in psutil.Process(os.getpid()).children()} - before
    assert not folder.exists()
    for use in (lambda: list(measurer.measure([])), lambda: measurer.duel([], 1)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_target_that_is_no_processor() -> None:
    with pytest.raises(TargetError, match="not on cuda"):
        RemoteMeasurer(tvm.target.Target("cuda"), tracker="h:1", key=KEY)


def test_who_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert linker(host_target()).exists()
    far = tvm.target.Target({"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu"})
    with pytest.raises(ToolchainError, match=r"riscv64-linux-gnu-g\+\+ is not(.|\n)*apt install"):
        linker(far)
    tool = tmp_path / "riscv64-linux-gnu-g++"
    tool.write_text("#!/bin/sh\necho 13.2\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert linker(far) == tool
