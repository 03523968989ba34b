"""The workers that compile and run kernels, one at a time, and how we talk with them."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm

from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import TuningError
from tvmlab.runtime import forked as _forked
from tvmlab.tuning.measuring import process as process_module
from tvmlab.tuning.measuring import wire
from tvmlab.tuning.measuring.kernels import fingerprint, inputs
from tvmlab.tuning.measuring.process import KernelError, Process, WorkerLost

TARGET = json.loads(str(host_target()))
PLAN = {"number": 1, "repeat": 3, "min_repeat_ms": 0, "cache_flush": True}


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


def when_it_runs(process: Process, seconds: float = 60.0) -> int:
    """Wait until a worker has forked a kernel off; the kernel's process."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if children := psutil.Process(process.pid).children():
            return int(children[0].pid)
        time.sleep(0.02)
    raise AssertionError("no kernel runs")


@pytest.fixture(scope="module")
def shared() -> Iterator[Process]:
    process = Process(threads=2)
    yield process
    process.kill()


def built(process: Process, module: tvm.ir.IRModule, wait: float = 60.0) -> int:
    text = tvm.ir.save_json(module)
    number: int = process.ask("build", wait=wait, module=text, target=TARGET, seconds=wait)
    return number


def run(process: Process, *which: int, seconds: float = 10.0, rounds: int = 0) -> dict[str, list]:
    told: dict[str, list] = process.ask(
        "measure", wait=60, which=list(which), plan=PLAN, rounds=rounds, seconds=seconds
    )
    return told


# The wire


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


@pytest.mark.parametrize("text", ["", "a", "Grüße", "x" * 3_000_000])
def test_a_message_comes_as_it_was_sent(text: str) -> None:
    ours, theirs = pair()
    message = {"text": text, "numbers": [1, 2.5, None]}
    sender = threading.Thread(target=wire.send, args=(ours, message))
    with ours, theirs:
        sender.start()
        assert wire.receive(theirs, time.monotonic() + 60) == message
        sender.join()


def test_the_end_of_a_connection() -> None:
    ours, theirs = pair()
    with theirs:
        ours.sendall(struct.pack("<I", 10) + b"{")
        ours.close()
        with pytest.raises(EOFError):
            wire.receive(theirs)


def test_nothing_comes_in_time() -> None:
    ours, theirs = pair()
    with ours, theirs:
        ours.sendall(struct.pack("<I", 10) + b"{")
        with pytest.raises(TimeoutError):
            wire.receive(theirs, time.monotonic() + 0.05)
        with pytest.raises(TimeoutError):
            wire.receive(theirs, time.monotonic() - 1)


def test_a_receiver_that_does_not_read() -> None:
    ours, theirs = pair()
    with ours, theirs, pytest.raises(TimeoutError):
        wire.send(ours, {"text": "x" * 30_000_000}, time.monotonic() + 0.1)


# The process


def test_a_worker_measures(shared: Process) -> None:
    told = run(shared, built(shared, kernels.adds(1.0)))
    (times,), (answer,) = told["times"], told["answers"]
    assert len(times) == 3
    assert all(seconds > 0 for seconds in times)
    assert answer == pytest.approx(
        fingerprint([inputs((((64,), "float32"),), ())[0] + np.float32(1)])
    )


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (kernels.Outside, "SIGSEGV: it reached outside of its tensors"),
        (kernels.Aborts, "SIGABRT"),
        (kernels.Leaves, "exit code 0"),
    ],
)
def test_a_kernel_that_ends_its_process(kernel: tvm.ir.IRModule, why: str, shared: Process) -> None:
    number, pid = built(shared, kernel), shared.pid
    with pytest.raises(KernelError, match=why):
        run(shared, number)
    good = built(shared, kernels.adds(1.0))
    assert len(run(shared, good)["times"][0]) == 3
    assert shared.pid == pid


def test_a_kernel_that_does_not_end(shared: Process) -> None:
    number = built(shared, kernels.Endless)
    with pytest.raises(KernelError, match=r"longer than 0\.5 s") as caught:
        run(shared, number, seconds=0.5)
    assert caught.value.late
    assert not psutil.Process(shared.pid).children()


def test_what_a_kernel_prints_is_no_answer(shared: Process) -> None:
    assert len(run(shared, built(shared, kernels.Speaks))["times"][0]) == 3


@pytest.mark.parametrize(
    ("module", "why"),
    [(kernels.ForDevices, "not implemented"), (kernels.without_size(), "tensor of a known shape")],
)
def test_a_kernel_that_cannot_be_compiled(
    module: tvm.ir.IRModule, why: str, shared: Process
) -> None:
    with pytest.raises(KernelError, match=why):
        built(shared, module)


def test_text_that_is_no_module(shared: Process) -> None:
    with pytest.raises(KernelError):
        shared.ask("build", wait=60, module="{", target=TARGET, seconds=60)
    with pytest.raises(KernelError, match="KeyError"):
        shared.ask("fly", wait=60)
    with pytest.raises(KernelError, match="KeyError"):
        run(shared, 10**6)


def test_a_worker_imports_little_and_has_its_threads(shared: Process) -> None:
    shared.wait_until_ready()
    mapped = Path(f"/proc/{shared.pid}/maps").read_text()
    assert "libtvm_compiler" in mapped
    assert not any(name in mapped for name in ("torch", "onnx", "matplotlib"))
    assert b"TVM_NUM_THREADS=2" in Path(f"/proc/{shared.pid}/environ").read_bytes().split(b"\0")


def test_a_worker_forgets(shared: Process) -> None:
    number = built(shared, kernels.adds(1.0))
    shared.ask("drop", wait=60)
    with pytest.raises(KernelError, match="KeyError"):
        run(shared, number)


def test_a_compiler_that_takes_too_long_is_ended() -> None:
    process = Process(threads=1)
    process.wait_until_ready()
    with pytest.raises(WorkerLost, match=r"longer than 0\.5 s"):
        built(process, kernels.Long, wait=0.5)
    assert not process.alive


def test_a_worker_that_dies_says_how() -> None:
    process = Process(threads=1)
    process.wait_until_ready()
    killer = threading.Timer(0.3, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(WorkerLost, match="was ended by SIGKILL"):
        built(process, kernels.Long)
    killer.join()
    assert not process.alive


def test_memory_has_a_limit() -> None:
    process = Process(threads=1, memory=1 << 30)
    try:
        with pytest.raises(KernelError, match=r"alloc|memory|Memory"):
            run(process, built(process, kernels.adds(1.0, size=1 << 29)))
        assert len(run(process, built(process, kernels.adds(1.0)))["times"][0]) == 3
    finally:
        process.kill()


def test_a_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; print('no tvm here', file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(process_module, "command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(TuningError, match=r"cannot start(.|\n)*exit code 3(.|\n)*no tvm here"):
        Process(threads=1).ask("drop", wait=60)
    monkeypatch.setattr(process_module, "command", lambda *_: ["/no/such/python"])
    with pytest.raises(TuningError, match="cannot start"):
        Process(threads=1)


def test_a_worker_whose_tvm_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    line = process_module.command

    def broken(*arguments: str) -> list[str]:
        *python, flag, start, folder, module = line(*arguments)[:6]
        start = 'import sys; sys.modules["tvm"] = None\n' + start
        return [*python, flag, start, folder, module, *arguments[1:]]

    monkeypatch.setattr(process_module, "command", broken)
    with pytest.raises(TuningError, match=r"cannot start.*tvm"):
        Process(threads=1).ask("drop", wait=60)


def test_a_worker_that_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time; time.sleep(600)"
    monkeypatch.setattr(process_module, "command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(process_module, "START_SECONDS", 0.3)
    process = Process(threads=1)
    with pytest.raises(TuningError, match=r"not ready after 0\.3 s"):
        process.ask("drop", wait=60)
    assert not process.alive


_PARENT = """
import sys
sys.modules["torch"] = None
sys.path.insert(0, sys.argv[1])
import threading, time
from tests.tuning import kernels
from tests.tuning.test_worker import Process, built, run
found = []
def start():
    process = Process(threads=1)
    number = built(process, kernels.Endless)
    print(process.pid, flush=True)
    run(process, number, seconds=300)
if sys.argv[2] == "thread":
    threading.Thread(target=start, daemon=True).start()
    time.sleep(600)
start()
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_workers_and_their_kernels_end_with_the_parent(where: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(Path(__file__).parents[2]), where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    end = time.monotonic() + 60
    while not (children := psutil.Process(worker).children()):
        assert time.monotonic() < end
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    assert gone(worker)
    assert gone(children[0].pid)


def test_the_kernel_ends_with_its_worker() -> None:
    process = Process(threads=1)
    number = built(process, kernels.Endless)

    def ask() -> None:
        with pytest.raises(WorkerLost):
            run(process, number)

    asked = threading.Thread(target=ask)
    asked.start()
    kernel = when_it_runs(process)
    os.kill(process.pid, signal.SIGKILL)
    asked.join()
    assert gone(kernel)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGILL, "SIGILL: this processor lacks an instruction"),
        (-signal.SIGKILL, "run out of memory"),
        (-signal.SIGFPE, "SIGFPE"),
        (3, "exit code 3"),
    ],
)
def test_how_a_kernel_died(code: int, words: str) -> None:
    assert words in _forked.how_it_died(code)
