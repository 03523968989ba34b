"""Tuning that is killed."""

import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

from tests.short import examples
from tvmlab.records.file import Records

CHILD = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tests.tuning.searches import FakeMeasurer, task
from tvmlab.records.file import Records
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
                # Each kill can leave one measurement in the file that was not reported.
                assert kept + fresh <= len(records) <= kept + fresh + 1
                kept = len(records)
        finally:
            process.kill()
    assert kept >= told > 0.8 * kills
    results = Records(path).results()
    traces = [str(result.trace) for result in results if result.origin == "search"]
    assert len(set(traces)) == len(traces)
    assert sum(result.origin == "rule" for result in results) == 1
