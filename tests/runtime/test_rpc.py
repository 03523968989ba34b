"""The tracker, the server, and the commands that start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
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
from tests.short import long
from tests.tuning import kernels
from tvmlab import cli
from tvmlab.errors import TuningError
from tvmlab.runtime import protocol as _rpc
from tvmlab.runtime import rpc, rpc_server
from tvmlab.runtime.protocol import parse_address
from tvmlab.runtime.tracker import Tracker
from tvmlab.support.target import Abilities, abilities

MAGIC = struct.pack("<i", _rpc.MAGIC)


@pytest.fixture(scope="module")
def farm() -> Iterator[tuple[str, Running]]:
    with farms.farm(1) as (address, servers):
        yield address, servers[0]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    some = {"adds": kernels.adds(1.0), "outside": kernels.Outside, "endless": kernels.Endless}
    for name, module in some.items():
        built = tvm.tirx.build(module, tvm.target.Target("llvm"))
        built.export_library(str(folder / f"{name}.so"))
    return folder


def session(address: str, seconds: float = 60.0) -> Any:
    taken = Tracker(address, KEY).request(20.0)
    assert taken is not None
    return tvm_rpc.connect(*taken, session_timeout=seconds)


def call(connected: Any, path: Path) -> np.ndarray:
    connected.upload(str(path))
    module = connected.load_module(path.name)
    x, y = (tvm.runtime.tensor(np.zeros(64, np.float32), connected.cpu(0)) for _ in range(2))
    module["main"](x, y)
    return y.numpy()


def test_a_server_runs_what_it_is_sent(farm: tuple[str, Running], library: Path) -> None:
    for _ in range(3):
        connected = session(farm[0])
        np.testing.assert_array_equal(call(connected, library / "adds.so"), np.ones(64))
        del connected


def test_a_crash_is_told_and_the_server_lives(farm: tuple[str, Running], library: Path) -> None:
    with pytest.raises(RPCError, match="SIGSEGV: it reached outside"):
        call(session(farm[0]), library / "outside.so")
    assert call(session(farm[0]), library / "adds.so").all()


def test_a_kernel_that_does_not_end(farm: tuple[str, Running], library: Path) -> None:
    before = {child.pid for child in psutil.Process(farm[1].process.pid).children(recursive=True)}
    with pytest.raises(RPCSessionTimeoutError, match="longer than 1 s"):
        call(session(farm[0], 1.0), library / "endless.so")
    assert call(session(farm[0]), library / "adds.so").all()
    end = time.monotonic() + 60
    while {child.pid for child in psutil.Process(farm[1].process.pid).children()} - before:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nothing_stays_of_a_session(farm: tuple[str, Running], library: Path) -> None:
    connected = session(farm[0])
    folder = Path(str(connected.get_function("tvm.rpc.server.workpath")(".")))
    call(connected, library / "adds.so")
    assert [path.name for path in folder.iterdir()] == ["adds.so"]
    del connected
    end = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_session_has_the_threads_of_the_server(farm: tuple[str, Running]) -> None:
    connected = session(farm[0])
    assert connected.get_function("runtime.NumThreads")() == 1


JUNK = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00" * 64,
    MAGIC,
    MAGIC + struct.pack("<i", -1),
    MAGIC + struct.pack("<i", 2**31 - 1),
    MAGIC + struct.pack("<i", 5) + b"\xff\xfe\xfd\xfc\xfb",
    MAGIC + struct.pack("<i", 12) + b"client:wrong",
    MAGIC + struct.pack("<i", 0),
]


@pytest.mark.parametrize("junk", JUNK)
def test_a_server_turns_junk_away(junk: bytes, farm: tuple[str, Running], library: Path) -> None:
    where = parse_address(address_of(farm[0]))
    with socket.create_connection(where) as connection:
        connection.sendall(junk)
    assert call(session(farm[0]), library / "adds.so").all()


def address_of(tracker: str) -> str:
    """The address of the one server that the tracker knows."""
    found = tvm_rpc.connect_tracker(*parse_address(tracker)).summary()["server_info"]
    (host, port) = found[0]["addr"]
    return f"{host}:{port}"


def test_a_client_that_says_nothing(farm: tuple[str, Running], library: Path) -> None:
    with socket.create_connection(parse_address(address_of(farm[0]))):
        assert call(session(farm[0]), library / "adds.so").all()  # after five seconds


@pytest.mark.parametrize("length", [-1, 0, 7, 2**20 + 1, 2**31 - 1])
def test_a_tracker_bears_junk(length: int, farm: tuple[str, Running]) -> None:
    magic = struct.pack("<i", _rpc.TRACKER_MAGIC)
    random = np.random.default_rng(length % 97)
    texts = [b"", b"{}", b"[]", b"[3]", b"[99]", b'["a", {}]', b"[3, [], [1, 2], 3]", b"\xff\xff"]
    for text in [*texts, b'[5, {"addr": []}]', b"[4, {}, 1, 2]", b'[2, "guess"]']:
        for sent in (text, magic + text, magic + struct.pack("<i", length) + text):
            poke(farm[0], sent)
        poke(farm[0], magic + struct.pack("<i", len(text)) + text)
        poke(farm[0], magic + random.bytes(100))
    assert Tracker(farm[0], KEY).servers() == 1


def poke(address: str, data: bytes) -> None:
    with socket.create_connection(parse_address(address), timeout=300) as connection:
        connection.sendall(data)


def test_a_server_that_nobody_fetches_is_offered_again(farm: tuple[str, Running]) -> None:
    tracker = Tracker(farm[0], KEY)
    first = tracker.request(20)
    second = tracker.request(20)
    assert first is not None
    assert second is not None
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    # Who comes with the first offer now is not told to have a wrong key.
    late = f"client:{first[2]}".encode()
    with socket.create_connection(first[:2], timeout=300) as connection:
        connection.sendall(MAGIC + struct.pack("<i", len(late)) + late)
        assert connection.recv(4) == struct.pack("<i", _rpc.MISMATCH)
    assert "turned away" in farm[1].until("came late, to what was offered anew")


def test_a_slow_device_and_a_signal(library: Path) -> None:
    running, address = farms.tracker()
    server = farms.server(address, device_seconds=600)
    try:
        assert "600 s more" in server.until("SIMULATED")
        farms.known(server)
        with pytest.raises(RPCSessionTimeoutError, match="longer than 5 s"):
            call(session(address, 5.0), library / "adds.so")
        _connected = session(address)
        (child,) = psutil.Process(server.process.pid).children()
        server.send(signal.SIGTERM)
        assert server.process.wait(300) == 0
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
        end = time.monotonic() + 60
        while Tracker(address, KEY).servers():
            assert time.monotonic() < end
            time.sleep(0.02)
        running.send(signal.SIGTERM)
        assert running.process.wait(300) == 0
    finally:
        server.end()
        running.end()


def test_a_server_without_a_tracker_and_ctrl_c(library: Path) -> None:
    server = farms.server(None)
    try:
        port = int(server.until("serving").rpartition(":")[2])
        connected = tvm_rpc.connect("127.0.0.1", port, KEY, session_timeout=300)
        assert call(connected, library / "adds.so").all()
        server.send(signal.SIGINT)
        assert server.process.wait(300) == 0
    finally:
        server.end()


def listens(port: int) -> set[str]:
    """The addresses at which somebody listens to a port."""
    return {
        c.laddr.ip
        for c in psutil.net_connections("tcp4")
        if c.status == psutil.CONN_LISTEN and c.laddr.port == port
    }


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "127.0.0.1"),
        pytest.param("127.0.0.2", "127.0.0.2", marks=long),
        ("0.0.0.0", None),
    ],
)
def test_a_server_listens_where_it_is_told(host: str, told: str | None, library: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("other systems have one loopback address")
    running, address = farms.tracker()
    server = farms.server(address, host=host)
    try:
        line = server.until("serving")
        port = int(line.rpartition(":")[2])
        assert f" {host}:{port}" in line
        farms.known(server)
        assert listens(port) == {host}
        assert address_of(address) == f"{told or '127.0.0.1'}:{port}"
        taken = Tracker(address, KEY).request(20.0)
        assert taken is not None
        assert taken[:2] == (told or "127.0.0.1", port)
        connected = tvm_rpc.connect(*taken, session_timeout=300)
        assert call(connected, library / "adds.so").all()
        other = "127.0.0.1" if host == "127.0.0.2" else "127.0.0.2"
        with (
            contextlib.nullcontext() if told is None else pytest.raises(ConnectionRefusedError),
            socket.create_connection((other, port)),
        ):
            pass
    finally:
        server.end()
        running.end()


@pytest.mark.parametrize(
    ("here", "tracker", "is_hidden"),
    [
        ("127.0.0.1", "192.0.2.7", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "192.0.2.7", False),
        ("192.0.2.8", "192.0.2.7", False),
    ],
)
def test_a_server_that_its_trackers_clients_cannot_reach(
    here: str, tracker: str, is_hidden: bool
) -> None:
    assert rpc_server.hidden(here, tracker) is is_hidden


def test_a_server_tells_what_it_can_run(farm: tuple[str, Running]) -> None:
    told = Abilities.read(str(session(farm[0]).get_function("tvmlab.abilities")()))
    assert told == abilities()


# The commands


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536"])
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(TuningError, match="host and its port"):
        parse_address(text)


def test_an_address() -> None:
    assert parse_address("example.org:9190") == ("example.org", 9190)
    assert parse_address("::1:80") == ("::1", 80)


def test_help_says_who_may_reach_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("rpc-tracker", "rpc-server"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert "runs whatever it receives" in said
        assert "127.0.0.1" in said


def test_what_a_command_line_gets_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rpc-server", "--key", "k", "--tracker", "nowhere"]) == 1
    assert "host and its port" in capsys.readouterr().err
    assert cli.main(["rpc-server", "--key", "a b", "--tracker", "h:1"]) == 1
    assert "a key is one word" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli.main(["rpc-tracker", "--port", str(taken.getsockname()[1])]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_the_command_becomes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}

    def execve(program: str, line: list[str], environment: dict[str, str]) -> None:
        found.update(program=program, line=line, environment=environment)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(SystemExit):
        cli.main(["rpc-server", "--key", KEY, "--tracker", "127.0.0.1:1", "--device-seconds", "2"])
    assert found["program"] == sys.executable
    assert found["line"][-6:] == [
        "tvmlab.runtime.rpc_server",
        "127.0.0.1",
        "0",
        KEY,
        "127.0.0.1:1",
        "2.0",
    ]
    assert int(found["environment"]["TVM_NUM_THREADS"]) > 0


def test_the_program_itself_and_a_tracker_that_comes_and_goes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = f"127.0.0.1:{port}"
    server = Running(
        [sys.executable, "-m", "tvmlab", "rpc-server", "--key", KEY, "--tracker", where]
    )
    try:
        server.until(f"serving {KEY} at 127.0.0.1:")
        server.until("no tracker, trying again")
        running, _ = farms.tracker(port)
        farms.known(server)
        assert Tracker(where, KEY).servers() == 1
        running.send(signal.SIGINT)
        assert running.process.wait(300) == 0
        server.until("no tracker, trying again")
        server.send(signal.SIGTERM)
        assert server.process.wait(300) == 0
    finally:
        server.end()
        running.end()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            rpc.server("127.0.0.1", port, KEY, None), capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr


def test_no_device_is_quicker_than_it_is() -> None:
    assert json.dumps(rpc.server("h", 1, "k", None, -1.0)).endswith('"0.0"]')
