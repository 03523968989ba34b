"""Record files that were cut, changed, or written by two at once."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.records import records as helpers
from tests.records.records import result
from tests.short import examples, fresh
from tvmlab.errors import RecordError
from tvmlab.records.records import Records, _decode, encode

SEED = 7
# Forks processes that append to files and tell of each line when it is written. Two write one file
# at once. Others are killed, each after its pause, when it has told of a line in another file.
WRITERS = """
import os, signal, sys, time
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tvmlab.records.records import Records
from tvmlab.records.entries import Result

def start(path, name, count):
    told, tell = os.pipe()
    if child := os.fork():
        os.close(tell)
        return child, told
    records = Records(path)
    for seed in range(count):
        records.append(Result(workload="w", task=name, origin="search", threads=2, seed=seed,
                              target={"kind": "llvm"}, trace=[["x" * 20000], []], times=(1.0,)))
        os.write(tell, b".")
    os._exit(0)

both, killed, *pauses = sys.argv[1:]
children = [start(both, name, 100)[0] for name in ("one", "two")]
assert not any(os.waitpid(child, 0)[1] for child in children)
for pause in pauses:
    child, told = start(killed, pause, 10**9)
    lines = len(os.read(told, 1))
    time.sleep(float(pause))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(told, 1 << 16):
        lines += len(more)
    os.close(told)
    print(lines, len(Records(killed)), flush=True)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Path, list[list[int]]]:
    """The files of `WRITERS`; for each pause, the lines told of and those in the file."""
    folder = tmp_path_factory.mktemp("written")
    both, killed = folder / "both", folder / "killed"
    chance = random.Random(fresh(3))
    pauses = [str(chance.uniform(0, 0.02)) for _ in range(examples(50))]
    command = [sys.executable, "-W", "ignore", "-c", WRITERS, str(both), str(killed), *pauses]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return both, killed, [list(map(int, line.split())) for line in said.stdout.splitlines()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Give the lines of a file with everything in it."""
    path = tmp_path_factory.mktemp("real") / "records.jsonl"
    helpers.fill(path)
    return path.read_bytes().splitlines(keepends=True)


def test_two_processes_write_one_file(written):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Records(written[0]).results()
    for name in ("one", "two"):
        assert [one.seed for one in found if one.task == name] == list(range(100))


def test_who_is_killed_loses_what_he_was_writing_at_most(written):
    _, path, rounds = written
    before = 0
    assert len(rounds) == examples(50)
    for told, found in rounds:
        assert told >= 1
        assert found - before in (told, told + 1)
        before = found
    Records(path).append(result())
    assert len(Records(path)) == before + 1


def test_a_torn_last_line_is_left_out_and_ended(path, lines):
    whole = b"".join(lines[:-1])
    for cut in (1, 5, 12, 100, len(lines[-1]) - 2):
        path.write_bytes(whole + lines[-1][:cut])
        with pytest.warns(RuntimeWarning, match=rf"1 damaged line left out: line {len(lines)} \("):
            records = Records(path)
        assert len(records) == len(lines) - 2
        records.append(result(seed=cut))
        assert path.read_bytes().startswith(whole + lines[-1][:cut] + b'\n{"check":"')
        with pytest.warns(RuntimeWarning, match="1 damaged line left out"):
            assert Records(path).results()[-1].seed == cut


def test_random_damage(path, lines):
    """A damaged file is read or refused; what is read of it is what was written."""
    chance = random.Random(fresh(SEED))
    known = {_decode(line)[0] for line in lines}
    refused = warned = 0
    count = examples(1000)
    for _ in range(count):
        data = bytearray(b"".join(lines))
        if chance.random() < 0.5:
            for _ in range(chance.choice([1, 10, 200])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        else:
            start = chance.randrange(len(data))
            del data[start : start + chance.choice([1, 100, 10**6])]
        path.write_bytes(data)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                records = Records(path)
            except RecordError:
                refused += 1
                continue
        assert {warning.category for warning in caught} <= {RuntimeWarning}
        warned += bool(caught)
        assert {_decode(encode(entry))[0] for entry in records.entries} <= known
    assert warned > count / 3
    assert refused < count / 3
