"""Measuring on this machine: batches, what goes wrong, duels, ends of processes, and answers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm

from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.errors import TargetError, TuningError
from tvmlab.tuning import measurers
from tvmlab.tuning.kernels import Measure, Outcome, build, fingerprint, inputs, measure
from tvmlab.tuning.measurers import LocalMeasurer
from tvmlab.tuning.tasksearch import same_answer

QUICK = Measure(repeat=2, timeout=5.0)


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(host_target(), QUICK) as made:
        yield made


def good(outcome: Outcome, samples: int = 2) -> bool:
    return len(outcome.times) == samples and not outcome.error and len(outcome.answer) == 2


def test_a_batch_with_all_that_goes_wrong(measurer: LocalMeasurer) -> None:
    whys = {
        1: "SIGSEGV: it accessed memory outside of its tensors",
        2: "compiled: .*not impl",
        3: "longer than 5 s",
        5: "SIGABRT",
        7: "exit code 0",
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
    ]
    found = dict(measurer.measure(batch))
    assert sorted(found) == list(range(len(batch)))
    assert [place for place in sorted(found) if good(found[place])] == [0, 4, 6]
    assert found[0].answer == found[6].answer != found[4].answer
    for place, why in whys.items():
        assert not found[place].times
        assert re.search(why, found[place].error)
    assert list(measurer.measure([])) == []


def test_a_compiler_that_takes_too_long_takes_no_other_kernel_along() -> None:
    batch = [kernels.adds(1.0), kernels.adds(2.0), kernels.Long, kernels.adds(3.0)]
    with LocalMeasurer(host_target(), Measure(repeat=2, build_timeout=5.0)) as measurer:
        found = dict(measurer.measure(batch))
    assert "compiled: it took longer than 5 s" in found[2].error
    assert [place for place in sorted(found) if good(found[place])] == [0, 1, 3]


def test_a_kernel_that_is_compiled_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = measurers.KernelProcess.compiled

    def late(process: measurers.KernelProcess) -> None:
        compiled(process)
        assert process._connection.poll(300)  # the late result of the compilation

    monkeypatch.setattr(measurers.KernelProcess, "compiled", late)
    with LocalMeasurer(host_target(), Measure(repeat=2, build_timeout=0.01)) as measurer:
        ((_, outcome),) = measurer.measure([kernels.adds(1.0)])
    assert "compiled: it took longer than 0.01 s" in outcome.error


@pytest.mark.full
def test_ctrl_c_and_then_again() -> None:
    with LocalMeasurer(host_target(), Measure(repeat=2, timeout=60)) as measurer:
        for batch in ([kernels.Endless], [kernels.Long, kernels.Long, kernels.Long]):
            interrupt = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                list(measurer.measure(batch))
            assert not measurer._alive
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


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2}, "lacks"),
        ({"kind": "llvm", "mcpu": "sapphirerapids", "mattr": ["+amx-fp8"], "num-cores": 2}, "amx"),
        ({"kind": "cuda", "arch": "sm_80"}, "cuda is not a kind of CPU"),
        (
            {"kind": "llvm", "num-cores": 5000},
            "num-cores is 5000, but the machine",
        ),
    ],
)
def test_a_target_that_cannot_run_here(target: dict[str, object], why: str) -> None:
    with pytest.raises(TargetError, match=why):
        LocalMeasurer(tvm.target.Target(target))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("number", value) for value in (True, "1", 1.5, 0)],
        ("min_repeat_ms", -1),
        *[("timeout", value) for value in (0, float("nan"), float("inf"))],
    ],
)
def test_how_nothing_can_be_measured(name: str, value: object) -> None:
    with pytest.raises(TuningError, match=re.escape(f"{name} is {value!r}, not ")) as caught:
        Measure(**{name: value})  # type: ignore[arg-type]
    assert caught.value.fix


def test_a_process_has_a_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurers, "main_memory", lambda: 2 << 30)
    with LocalMeasurer(host_target(), QUICK) as measurer:
        found = dict(measurer.measure([kernels.adds(1.0, size=1 << 29), kernels.adds(1.0)]))
        assert re.search(r"alloc|memory|Memory", found[0].error)
        assert good(found[1])


# A script without a guard, which `multiprocessing` alone would run again in each process.
PARENT = """
import sys
sys.modules["torch"] = None
from tests.tuning import kernels
from tvmlab import host_target
from tvmlab.tuning import LocalMeasurer, Measure

with LocalMeasurer(host_target(), Measure(timeout=300)) as measurer:
    print(dict(measurer.measure([kernels.adds(1.0)])), flush=True)
    list(measurer.measure([kernels.Endless]))
"""


def test_processes_end_with_the_parent(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    assert "error=''" in parent.stdout.readline()
    running: list[psutil.Process] = []
    while not any(one.cpu_times().user > 0.5 for one in running[2:]):  # not the server's own
        running = psutil.Process(parent.pid).children(recursive=True)
    mapped = "".join(Path(f"/proc/{one.pid}/maps").read_text() for one in running)
    assert "libtvm_compiler" in mapped
    assert not any(name in mapped for name in ("libtorch", "onnx", "matplotlib"))
    parent.kill()
    parent.wait()
    assert psutil.wait_procs(running, timeout=60)[1] == []


TARGET = json.loads(str(host_target()))
HOW = Measure(repeat=3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64", "float32"])
def test_what_is_not_written_is_no_zero(dtype: str) -> None:
    read, unwritten = inputs((((90,), dtype), ((90,), dtype)), (1,))
    assert str(read.dtype) == str(unwritten.dtype) == dtype
    assert fingerprint([unwritten]) != fingerprint([np.zeros_like(unwritten)])
    if "int" in dtype and not dtype.endswith("int8"):
        assert not read.any()
        assert unwritten.all()


def test_a_kernel_that_leaves_half_of_its_output() -> None:
    whole, half = (
        build(tvm.ir.save_json(kernel), TARGET) for kernel in (kernels.Counts, kernels.CountsHalf)
    )
    for other, same in ((half, False), (whole, True)):
        one, two = measure([whole, other], HOW, 0)
        assert same_answer(one.answer, two.answer, [0.0]) is same


def test_the_answer_is_that_of_what_is_written() -> None:
    kernel = build(tvm.ir.save_json(kernels.adds(1.0)), TARGET)
    x, y = inputs(kernel.arguments, kernel.outputs)
    assert not np.array_equal(x, y)  # each has its own numbers
    (outcome,) = measure([kernel], HOW, 0)
    assert list(outcome.answer) == pytest.approx(fingerprint([x + np.float32(1)]))
