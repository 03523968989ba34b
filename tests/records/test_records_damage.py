"""Record files that were cut, changed, or written by two at once."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings

import pytest

from tests.records import records as helpers
from tests.records.records import result
from tests.short import examples, fresh
from tvmlab.errors import RecordError
from tvmlab.records.records import Records, _decode, encode

SEED = 7
# Forks two processes that append to one file at once.
WRITERS = """
import os, sys
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tvmlab.records.entries import Result
from tvmlab.records.records import Records

def start(name):
    if child := os.fork():
        return child
    records = Records(sys.argv[1])
    for seed in range(100):
        records.append(Result(workload="w", task=name, origin="search", threads=2, seed=seed,
                              target={"kind": "llvm"}, trace=[["x" * 20000], []], times=(1.0,)))
    os._exit(0)

children = [start(name) for name in ("one", "two")]
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Give the lines of a file with everything in it."""
    path = tmp_path_factory.mktemp("real") / "records.jsonl"
    helpers.fill(path)
    return path.read_bytes().splitlines(keepends=True)


def test_two_processes_write_one_file(path):
    subprocess.run([sys.executable, "-c", WRITERS, str(path)], check=True, timeout=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Records(path).results()
    for name in ("one", "two"):
        assert [one.seed for one in found if one.task == name] == list(range(100))


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
