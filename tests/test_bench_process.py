"""The processes of `make bench`: what is said on the pipe, and who is named when one dies."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bench_process
import pytest
from bench_process import Child, ChildError

START = "import json, os, sys, time\n"
ECHO = """
for line in sys.stdin:
    print(json.dumps({"done": json.loads(line)}), flush=True)
"""
# A clock of its own: every turn takes longer than the last.
TURNS = """
count = 0
for line in sys.stdin:
    count += 1
    with open(LOG, "a") as log:
        print(NAME, json.loads(line)["key"], file=log)
    print(json.dumps({"done": {"seconds": FACTOR * count, "calls": 1}}), flush=True)
"""

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start children that are small programs; they end with the test."""
    started = []

    def child(code: str, name: str = "the child") -> Child:
        started.append(Child(name, [sys.executable, "-c", START + code]))
        return started[-1]

    yield child
    for each in started:
        each.close()


@pytest.fixture
def real() -> Iterator[Child]:
    """A child as the bench starts it; without a network it is quick."""
    child = Child("the real one")
    yield child
    child.close()


def alive(pid: int) -> bool:
    """Whether a process still runs; a dead one may wait to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def gone(pid: int) -> bool:
    """Wait until a process has ended."""
    for _ in range(1200):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_job_and_its_arguments_go_over_and_its_value_comes_back(start: Start) -> None:
    child = start(ECHO)
    assert child.do("turn", key="a\nb", seconds=0.5) == {
        "job": "turn",
        "key": "a\nb",
        "seconds": 0.5,
    }
    assert child.do("peak") == {"job": "peak"}


def test_an_exception_comes_back_with_its_last_lines_and_the_child_lives(real: Child) -> None:
    for _ in range(2):
        with pytest.raises(ChildError) as caught:
            real.do("turn", key="unknown", seconds=1)
        text = str(caught.value)
        assert "KeyError: 'unknown'" in text
        assert "Traceback" in text
        assert "where: the process of the real one, at turn" in text
    assert real.do("forget", key="unknown") is None


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("sys.stdin.readline(); os.write(2, b'out of luck'); os._exit(3)", "exit code 3"),
        ("sys.stdin.readline(); os.write(2, b'out of luck'); os.abort()", "SIGABRT"),
        ("os.write(2, b'out of luck'); os._exit(3)", "exit code 3"),
    ],
)
def test_a_child_that_dies_is_named_with_what_it_wrote(start: Start, code: str, how: str) -> None:
    child = start(code, "ResNet on the moon")
    if "readline" not in code:
        gone(child.pid)  # dead before it is asked
    with pytest.raises(ChildError) as caught:
        child.do("turn", key="x", seconds=1)
    assert str(caught.value).splitlines() == [
        f"ResNet on the moon ended: {how}",
        "    out of luck",
        "  where: the process of ResNet on the moon, at turn",
    ]


def test_a_child_that_hangs_is_ended(start: Start) -> None:
    child = start("time.sleep(1000)")
    with pytest.raises(ChildError, match=r"the child ended: no answer in 0\.2 s"):
        child.do("turn", timeout=0.2)
    assert gone(child.pid)


def test_what_a_library_prints_is_no_answer(tmp_path: Path) -> None:
    """A child whose job writes to its standard output, from Python and from below it."""
    code = (
        "import os, bench_process\n"
        "def noisy():\n"
        "    print('from Python', flush=True)\n"
        "    os.write(1, b'from C')\n"
        "    return 7\n"
        "bench_process.JOBS['noisy'] = noisy\n"
        "bench_process.serve()\n"
    )
    (tmp_path / "child.py").write_text(f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\n{code}")
    child = Child("noisy", [sys.executable, str(tmp_path / "child.py")])
    try:
        assert child.do("noisy") == 7
        with pytest.raises(ChildError, match="from Python\n    from C"):
            child.do("turn", key="x", seconds=1)
    finally:
        child.close()


SCRIPTS = Path(bench_process.__file__).parent


def test_a_child_ends_with_its_parent_even_when_it_does_not_look() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import os, signal\nfrom bench_process import Child\n"
        "child = Child('x')\nchild.do('forget', key='x')\n"
        "os.kill(child.pid, signal.SIGSTOP)\n"  # it cannot see that the requests end
        "print(child.pid, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert gone(pid)


def test_settling_waits_for_a_busy_child(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = start(ECHO), start("print('{\"done\": 0}', flush=True)\nwhile True: pass")
    idle.do("turn"), busy.do("turn")
    assert bench_process.settle([idle])
    monkeypatch.setattr(bench_process, "_LOOKS", 3)
    # However little of a loaded machine the busy one gets: looks end when it has had some.
    slept = bench_process.time.sleep

    def sleep(seconds: float) -> None:
        before = busy.cpu_seconds()
        slept(seconds)
        while busy.cpu_seconds() - before < seconds:
            slept(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(bench_process.time, "sleep", sleep)
        assert not bench_process.settle([idle, busy])
    os.kill(busy.pid, signal.SIGSTOP)
    assert bench_process.settle([idle, busy])


def racer(start: Start, log: Path, name: str, factor: float) -> Child:
    return start(f"LOG, NAME, FACTOR = {str(log)!r}, {name!r}, {factor}\n{TURNS}", name)


def test_a_race_goes_round_by_round_and_leaves_the_first_two_out(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    hare, tortoise = (racer(start, log, *each) for each in (("hare", 1), ("tortoise", 10)))
    found = bench_process.race(
        {"fast": (hare, "run"), "slow": (tortoise, "walk")}, rounds=2, budget=1e9
    )
    both = ["hare run", "tortoise walk"]
    assert log.read_text().splitlines() == both * 3 + both[::-1]  # each begins a round
    assert found.runs["fast"].samples == (3, 4)
    assert found.runs["slow"].samples == (30, 40)
    assert found.ratio("slow", "fast") == 10


@pytest.mark.parametrize(("rounds", "turns"), [(20, 3), (2, 2)])
def test_a_slow_race_has_fewer_rounds(
    rounds: int, turns: int, start: Start, tmp_path: Path
) -> None:
    runner = racer(start, tmp_path / "log", "a", 1)
    found = bench_process.race({"a": (runner, "x")}, rounds=rounds, budget=0)
    assert len(found.runs["a"].samples) == turns


def test_a_race_names_the_child_that_dies_in_it(start: Start, tmp_path: Path) -> None:
    good = racer(start, tmp_path / "log", "good", 1)
    bad = start("sys.stdin.readline(); os.abort()", "bad")
    with pytest.raises(ChildError, match="bad ended: SIGABRT"):
        bench_process.race({"good": (good, "x"), "bad": (bad, "x")}, rounds=3, budget=1)


class Clock:
    """A clock that moves when the function under it is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *costs: float) -> None:
        self.now, self.calls = 0.0, 0
        self._costs = itertools.chain(costs, itertools.repeat(costs[-1]))
        monkeypatch.setattr(bench_process.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(bench_process, "FUNCTIONS", {"f": self.call})
        monkeypatch.setattr(bench_process, "NUMBERS", {})

    def call(self) -> None:
        self.calls += 1
        self.now += next(self._costs)


@pytest.mark.parametrize(("cost", "calls"), [(1.0, 1), (0.05, 1), (0.03, 2), (1e-3, 50)])
def test_a_turn_is_as_many_calls_as_fill_it(
    cost: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, cost)
    answer = bench_process.turn("f", 0.05)
    assert answer == {"seconds": pytest.approx(cost), "calls": calls}
    before = clock.calls
    assert bench_process.turn("f", 0.05)["calls"] == calls  # found once
    warmup = max(1, round(bench_process.WARMUP_SECONDS / cost))
    assert warmup + calls <= clock.calls - before <= warmup + 1 + calls


def test_the_first_call_of_a_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, 100.0, 1.0)
    assert bench_process.turn("f", 0.05) == {"seconds": 1.0, "calls": 1}
