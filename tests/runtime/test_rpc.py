"""The tracker, the server, the commands that start them, and the tracker's client."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import rpc as tvm_rpc
from tvm.error import RPCError, RPCSessionTimeoutError

from tests.runtime import servers as farms
from tests.runtime.servers import KEY, Running
from tests.tuning import kernels
from tvmlab import cli
from tvmlab.errors import RemoteError
from tvmlab.runtime import tracker as trackers
from tvmlab.runtime.tracker import Tracker, parse_address
from tvmlab.support.host import Abilities, abilities


@pytest.fixture(scope="module")
def farm() -> Iterator[tuple[str, Running]]:
    with farms.farm(1) as (address, servers):
        yield address, servers[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    threads = tvm.s_tir.Schedule(kernels.adds(1.0))
    threads.parallel(threads.get_loops(threads.get_sblock("y"))[0])
    some = {
        "adds": kernels.adds(1.0),
        "threads": threads.mod,
        "outside": kernels.Outside,
        "endless": kernels.Endless,
    }
    for name, module in some.items():
        built = tvm.tirx.build(module, tvm.target.Target("llvm"))
        built.export_library(str(folder / f"{name}.so"))
    return folder


def session(address: str, seconds: float = 60.0) -> Any:
    """Connect as TVM's own client does."""
    tracker = tvm_rpc.connect_tracker(*parse_address(address))
    return tracker.request(KEY, session_timeout=seconds)


def call(connected: Any, path: Path) -> np.ndarray:
    connected.upload(str(path))
    module = connected.load_module(path.name)
    x, y = (tvm.runtime.tensor(np.zeros(64, np.float32), connected.cpu(0)) for _ in range(2))
    module["main"](x, y)
    return y.numpy()


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_server_runs_what_it_is_sent(farm: tuple[str, Running], library: Path) -> None:
    for _ in range(2):
        connected = session(farm[0])
        folder = Path(str(connected.get_function("tvm.rpc.server.workpath")(".")))
        np.testing.assert_array_equal(call(connected, library / "adds.so"), np.ones(64))
        assert [path.name for path in folder.iterdir()] == ["adds.so"]
        assert connected.get_function("runtime.NumThreads")() == 1
        told = Abilities.read(str(connected.get_function("tvmlab.abilities")()))
        assert told == abilities()
        del connected
        wait_until(lambda: not folder.exists())  # noqa: B023


def test_a_crash_is_told_and_the_server_lives(farm: tuple[str, Running], library: Path) -> None:
    with pytest.raises(RPCError, match="SIGSEGV: it reached outside"):
        call(session(farm[0]), library / "outside.so")
    assert call(session(farm[0]), library / "adds.so").all()


def test_a_kernel_that_does_not_end(farm: tuple[str, Running], library: Path) -> None:
    with pytest.raises(RPCSessionTimeoutError, match="session has expired"):
        call(session(farm[0], 1.0), library / "endless.so")
    assert call(session(farm[0]), library / "adds.so").all()
    wait_until(lambda: not psutil.Process(farm[1].process.pid).children())


def address_of(tracker: str) -> tuple[str, int]:
    """Return the address of the one server that the tracker lists."""
    (entry,) = tvm_rpc.connect_tracker(*parse_address(tracker)).summary()["server_info"]
    return tuple(entry["addr"])


def test_a_slow_device_and_a_signal(farm: tuple[str, Running], library: Path) -> None:
    """The server ends with its session, and the tracker does not list it any more."""
    server = Running(farms.command(farm[0], "slow", "--device-seconds", "1"))
    try:
        assert "1 s more" in server.until("SIMULATED")
        farms.known(server)
        begin = time.monotonic()
        connected = tvm_rpc.connect_tracker(*parse_address(farm[0])).request("slow")
        assert call(connected, library / "adds.so").all()
        assert time.monotonic() - begin > 1
        (child,) = psutil.Process(server.process.pid).children()
        server.send(signal.SIGTERM)
        assert server.process.wait(300) == 0
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        wait_until(lambda: not Tracker(farm[0], "slow").servers())
    finally:
        server.end()


def test_a_tracker_that_comes_and_goes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server, running = farms.server(f"127.0.0.1:{port}"), None
    try:
        server.until(f"serving {KEY} at 127.0.0.1:")
        server.until("no tracker, trying again")
        running, _ = farms.tracker(port)
        farms.known(server)
        running.send(signal.SIGINT)
        assert running.process.wait(300) == 0
        server.until("no tracker, trying again")
    finally:
        server.end()
        if running:
            running.end()


# The commands


def test_a_malformed_address() -> None:
    assert parse_address("example.org:9190") == ("example.org", 9190)
    for text in ("", "host", "host:", ":1", "host:x", "host:0", "host:65536"):
        with pytest.raises(RemoteError, match="host and its port"):
            parse_address(text)


def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # `rpc-server` sets both in this process
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for line, words in [
            (["rpc-server", "--key", "k", "--tracker", "nowhere"], "host and its port"),
            (["rpc-server", "--key", "a b", "--tracker", "h:1"], "a key is one word"),
            (["rpc-tracker", "--port", port], "cannot listen"),
            (["rpc-server", "--port", port], "cannot listen"),
        ]:
            assert cli.main(line) == 1
            assert words in capsys.readouterr().err


# The tracker's client


def test_a_tracker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "TALK_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RemoteError, match="does not answer"):
            Tracker(address, KEY).servers()
        with pytest.raises(RemoteError, match="does not answer"):
            Tracker(address, KEY).request(0.3)
    with pytest.raises(RemoteError, match=r"does not answer: (.|\n)*tvmlab rpc-tracker"):
        Tracker(address, KEY).expect()
