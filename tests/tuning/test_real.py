"""Tuning that is killed, and tuning with real kernels."""

import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import psutil
from tvm import relax
from tvm.ir import IRModule

from tests.short import ALL, examples
from tvmlab.records.records import Records

CHILD = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.records import Records
from tvmlab.tuning.session import tune_tasks

class Telling(FakeMeasurer):
    # Says which candidates were recorded: those before the requested one.
    def measure(self, kernels):
        for place, outcome in super().measure(kernels):
            yield place, outcome
            os.write(write, b"+")

def child():
    tune_tasks(
        [task(2520)], Telling(), Records({path!r}), trials=100000, tuner="random",
        progress=False,
    )

# One process imports everything and forks each run: no thread has started in it.
task(2520)
for line in sys.stdin:
    wanted, delay = line.split()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    os.close(write)
    told = 0
    while told < int(wanted):
        told += len(os.read(read, 1))
    time.sleep(float(delay))
    os.kill(pid, signal.SIGKILL)
    while chunk := os.read(read, 4096):
        told += len(chunk)
    os.close(read)
    _, status = os.waitpid(pid, 0)
    print(told, status, flush=True)
"""


def test_kills(tmp_path):
    """Killed again and again at random moments, one file: all measurements told of are there.

    And the next run goes on: nothing is measured twice, and its trials come on top.
    """
    path = tmp_path / "r.jsonl"
    code = CHILD.format(path=str(path), tests=str(Path(__file__).parents[2]))
    draw = random.Random(7)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told = kept = 0
    kills = examples(50)
    with process:
        try:
            for _ in range(kills):
                # Some before the first measurement, some at once after one, some later.
                wanted, delay = draw.randint(0, 3), draw.choice((0, draw.uniform(0, 0.1)))
                print(wanted, delay, file=process.stdin, flush=True)
                fresh, status = map(int, process.stdout.readline().split())
                assert status == signal.SIGKILL
                assert fresh >= wanted
                told += fresh
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of a last line that is torn
                    records = Records(path)
                # A measurement may be in the file and not yet told of: one a kill, at most.
                assert kept + fresh <= len(records) <= kept + fresh + 1
                kept = len(records)
        finally:
            process.kill()
    assert kept >= told > 0.8 * kills
    results = Records(path).results()
    traces = [str(result.trace) for result in results if result.origin == "search"]
    assert len(set(traces)) == len(traces)
    assert sum(result.origin == "rule" for result in results) == 1


# Real kernels.


def small_module() -> IRModule:
    """Two products with an activation between them."""
    build = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((32, 64), "float32"))
    weights = [
        relax.const(np.random.default_rng(k).standard_normal((64, 64), dtype=np.float32))
        for k in range(2)
    ]
    with build.function("main", [x]):
        hidden = build.emit(relax.op.nn.relu(relax.op.matmul(x, weights[0])))
        build.emit_func_output(build.emit(relax.op.matmul(hidden, weights[1])))
    return build.finalize()


REAL = """
import sys
sys.path.insert(0, {tests!r})
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
import tvmlab
from tests.tuning.test_real import small_module
from tvmlab.tuning.measure import Measure
from tvmlab.records.records import Records

class Telling(Records):
    def append(self, result):
        super().append(result)
        print("told", flush=True)

if __name__ == "__main__":
    tvmlab.tune(
        small_module(), records=Telling({path!r}), trials=500, tuner="random", layouts=False,
        measure=Measure(repeat=2, timeout=60, build_timeout=60), progress=False,
    )
"""


def test_the_real_thing_is_interrupted_and_killed(tmp_path):
    """Ctrl-C and SIGKILL while real kernels are compiled and measured, on one file.

    What was recorded is there, nothing is measured twice, and no process stays behind.
    """
    path = tmp_path / "r.jsonl"
    code = REAL.format(path=str(path), tests=str(Path(__file__).parents[2]))
    kept = 0
    ends = ((signal.SIGINT, 3), (signal.SIGKILL, 5), (signal.SIGKILL, 2))
    for how, wanted in ends if ALL else ends[:1]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        told = sum(process.stdout.readline() == "told\n" for _ in range(wanted))
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        out, err = process.communicate(timeout=300)
        told += out.count("told\n")
        assert process.returncode == -how, err
        assert ("KeyboardInterrupt" in err) is (how == signal.SIGINT)
        assert len(workers) >= 1
        assert psutil.wait_procs(workers, timeout=300)[1] == []
        assert told >= wanted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a last line that is torn
            records = Records(path)
        assert kept + told <= len(records) <= kept + told + 1
        kept = len(records)
    searched = [str(one.trace) for one in records.results() if one.origin == "search"]
    assert len(set(searched)) == len(searched)
