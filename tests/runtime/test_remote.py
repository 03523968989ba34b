"""Packages on RPC servers: the same bits, the server's own clock, and no endless wait."""

from __future__ import annotations

import gc
import json
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
from onnx import TensorProto
from tvm import relax
from tvm import rpc as tvm_rpc
from tvm.error import RPCSessionTimeoutError
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.oracles.models import array, dense, model, node, said, value
from tests.runtime import servers as farms
from tests.runtime.servers import KEY, Running
from tests.tuning import kernels
from tvmlab import cli
from tvmlab.errors import OutOfRangeError, PackageError, RemoteError
from tvmlab.runtime import remote
from tvmlab.runtime import tracker as trackers
from tvmlab.runtime.remote import RemoteExecutable
from tvmlab.runtime.tracker import Tracker, parse_address
from tvmlab.support.host import Abilities, abilities

X = array(2, 4)
# What any server of the tests can run: they have one thread.
TARGET = {"kind": "llvm", "num-cores": 1}


@pytest.fixture(scope="module")
def farm() -> Iterator[str]:
    with farms.farm(1) as (address, _):
        yield address


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}), TARGET)


@pytest.fixture(scope="module")
def saved(executable: tvmlab.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executable.save(tmp_path_factory.mktemp("remote") / "dense.so")


def test_the_same_bits(farm: str, executable: tvmlab.Executable, saved: Path) -> None:
    """Twice: the server that was closed is free again."""
    for _ in range(2):
        with RemoteExecutable(saved, tracker=farm, key=KEY) as there:
            assert there.signature == executable.signature
            for rows in (2, 5):
                x = array(rows, 4)
                assert there(x).tobytes() == executable(x).tobytes()
                assert there(x=x[::-1]).tobytes() == executable(x[::-1]).tobytes()
            assert len(there.time(X, repeats=3).samples) == 3
            assert min(there.time(X, repeats=2, number=5).samples) > 0


def test_a_call_that_fails_there(farm: str, tmp_path: Path) -> None:
    """The session goes on, and the server is free after `close` without a garbage collection."""
    inputs = [value("x", TensorProto.FLOAT, (3, 4)), value("i", TensorProto.INT64, (2,))]
    mod = tvmlab.load(model([node("Gather", ["x", "i"], ["y"])], inputs, ["y"]))
    path = tvmlab.compile(mod, TARGET).save(tmp_path / "gather.so")
    x, outside = array(3, 4), np.array([0, 9])
    gc.disable()
    try:
        with RemoteExecutable(path, tracker=farm, key=KEY) as there:
            for call in (there, there.time):
                with pytest.raises(OutOfRangeError, match="the server: an index") as caught:
                    call(x, outside)
                assert "from -3 to 2" in said(caught.value)
            assert (there(x, np.array([2, 0])) == x[[2, 0]]).all()
        with RemoteExecutable(path, tracker=farm, key=KEY) as again:
            assert (again(x, np.array([1, 1])) == x[[1, 1]]).all()
    finally:
        gc.enable()


def test_nothing_answers(saved: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RemoteError, match="no server answers"):
            RemoteExecutable(saved, server=nowhere)
        with pytest.raises(RemoteError, match="does not answer"):
            RemoteExecutable(saved, tracker=nowhere)
    with pytest.raises(RemoteError, match="a tracker or a server is needed") as caught:
        RemoteExecutable(saved)
    said(caught.value)
    with pytest.raises(PackageError, match="no such file"):
        RemoteExecutable(tmp_path / "missing.so", server=nowhere)


def test_no_server_is_free(farm: str, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RemoteExecutable(saved, tracker=farm, key=KEY):
        monkeypatch.setattr(remote, "_PATIENCE_SECONDS", 0.5)
        with pytest.raises(RemoteError, match="no server was free"):
            RemoteExecutable(saved, tracker=farm, key=KEY)


def test_a_server_of_tvm_itself(executable: tvmlab.Executable, saved: Path) -> None:
    running, address = farms.tracker()
    try:
        with farms.upstream(address), RemoteExecutable(saved, tracker=address, key=KEY) as there:
            assert there(X).tobytes() == executable(X).tobytes()
    finally:
        running.end()


def test_sizes_do_not_travel(tmp_path: Path) -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            return R.shape_of(x)

    path = tvmlab.compile(Module, TARGET).save(tmp_path / "shape.so")
    with pytest.raises(RemoteError, match="carries only tensors"):
        RemoteExecutable(path, server="127.0.0.1:1")


def call_forever(there: RemoteExecutable) -> None:
    while True:
        there(X)


def test_a_session_that_is_over(farm: str, saved: Path) -> None:
    with pytest.raises(RemoteError, match="lost the connection") as caught:
        call_forever(RemoteExecutable(saved, tracker=farm, key=KEY, session_seconds=3.0))
    said(caught.value)  # sometimes that it lasted too long, sometimes that the connection broke
    with RemoteExecutable(saved, tracker=farm, key=KEY) as again:
        assert again(X).shape == (2, 3)


def test_a_call_that_crashes_there(farm: str, tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    outside = builder.add_func(
        kernels.Outside["main"].with_attr("global_symbol", "outside"), "outside"
    )
    x = relax.Var("x", relax.TensorType((kernels.SIZE,), "float32"))
    with builder.function("main", [x]):
        y = relax.call_tir(outside, [x], x.ty)
        builder.emit_func_output(builder.emit(y))
    path = tvmlab.compile(builder.get(), TARGET, schedule=False).save(tmp_path / "crash.so")
    with (
        RemoteExecutable(path, tracker=farm, key=KEY) as there,
        pytest.raises(RemoteError, match=r"lost the connection(.|\n)*SIGSEGV"),
    ):
        there(array(kernels.SIZE))


def test_a_server_without_a_tracker_that_is_killed(
    executable: tvmlab.Executable, saved: Path
) -> None:
    running = farms.server(None)
    try:
        address = running.until("serving").rpartition(" ")[2]
        with pytest.raises(RemoteError, match="started with another key"):
            RemoteExecutable(saved, server=address, key="another")
        there = RemoteExecutable(saved, server=address, key=KEY)
        assert there(X).tobytes() == executable(X).tobytes()
        running.send(signal.SIGKILL)
        running.process.wait()
        with pytest.raises(RemoteError, match="lost the connection") as caught:
            call_forever(there)
        assert "Check failed" not in said(caught.value)
        with pytest.raises(RemoteError, match="it was closed"):
            there.time(X)
    finally:
        running.end()


def test_the_accelerator_is_simulated_there(farm: str, tmp_path: Path) -> None:
    from tests.npu.machine_code import Bytes
    from tests.qnn.run import run

    net = Bytes()
    one = net.conv(net.inputs[0])
    mod = net.module(net.add(net.turn(one), one))
    x = net.rng.integers(0, 256, (1, 4, 3, 3)).astype("uint8")
    path = tvmlab.compile(mod, f"npu, {tvmlab.target.as_target(TARGET)}").save(tmp_path / "n.so")
    with RemoteExecutable(path, tracker=farm, key=KEY) as there:
        assert (there(x) == run(mod, x)[0]).all()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    some = {"adds": kernels.adds(1.0), "endless": kernels.Endless}
    for name, module in some.items():
        built = tvm.tirx.build(module, tvm.target.Target("llvm"))
        built.export_library(str(folder / f"{name}.so"))
    return folder


def session(address: str, seconds: float = 60.0, key: str = KEY) -> Any:
    """Connect as TVM's own client does."""
    tracker = tvm_rpc.connect_tracker(*parse_address(address))
    return tracker.request(key, session_timeout=seconds)


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


def test_a_server_runs_what_it_is_sent(farm: str, library: Path) -> None:
    for _ in range(2):
        connected = session(farm)
        folder = Path(str(connected.get_function("tvm.rpc.server.workpath")(".")))
        np.testing.assert_array_equal(call(connected, library / "adds.so"), np.ones(64))
        assert [path.name for path in folder.iterdir()] == ["adds.so"]
        assert connected.get_function("runtime.NumThreads")() == 1
        told = Abilities(*json.loads(str(connected.get_function("tvmlab.abilities")())))
        assert told == abilities()
        del connected
        wait_until(lambda: not folder.exists())  # noqa: B023


def test_a_kernel_that_does_not_end(farm: str, library: Path) -> None:
    with pytest.raises(RPCSessionTimeoutError, match="longer than 1 s"):
        call(session(farm, 1.0), library / "endless.so")
    assert call(session(farm), library / "adds.so").all()


def test_a_server_ends_at_a_signal(farm: str, library: Path) -> None:
    """The server ends with its session and its files, and the tracker does not list it any more."""
    server = Running(farms.command(farm, "own"))
    try:
        farms.known(server)
        connected = session(farm, key="own")
        assert call(connected, library / "adds.so").all()
        (child,) = psutil.Process(server.process.pid).children()
        folder = Path(str(connected.get_function("tvm.rpc.server.workpath")(".")))
        assert folder.exists()
        server.send(signal.SIGTERM)
        assert server.process.wait(300) == 0
        assert not folder.exists()
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        wait_until(lambda: not Tracker(farm, "own").servers())
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


def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # `rpc-server` sets both in this process
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for line, words in [
            (["rpc-server", "--key", "k", "--tracker", "nowhere"], "host and its port"),
            (["rpc-server", "--key", "k", "--tracker", "host:65536"], "host and its port"),
            (["rpc-server", "--key", "a b", "--tracker", "h:1"], "a key is one word"),
            (["rpc-tracker", "--port", port], "cannot listen"),
            (["rpc-server", "--port", port], "cannot listen"),
        ]:
            assert cli.main(line) == 1
            assert words in capsys.readouterr().err


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
