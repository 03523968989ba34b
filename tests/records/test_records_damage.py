"""Record files that were cut, changed, or written by two at once."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.records import records as helpers
from tests.records.records import MODULE, TARGET, result
from tests.short import examples, fresh
from tvmlab.errors import RecordError
from tvmlab.records.records import _START, Records, _canonical, _checksum, _decode
from tvmlab.records.traces import replay

SEED = 7
# Forks processes that append to files and tell of each line when it is written. Two write one file
# at once. Others are killed, each after its pause, when it has told of a line in another file.
WRITERS = """
import os, signal, sys, time
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tvmlab.records.records import Records
from tvmlab.records.result import Result

def start(path, name, count):
    told, tell = os.pipe()
    if child := os.fork():
        os.close(tell)
        return child, told
    records = Records(path)
    for seed in range(count):
        records.append(Result("w", name, "search", [["x" * 20000], []], {"kind": "llvm"}, 2,
                              times=(1.0,), seed=seed))
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


def encode(fields: dict[str, Any]) -> bytes:
    """Write a line with a checksum that fits, whatever the fields are."""
    text = _canonical(fields)
    return _START + _checksum(text).encode() + b'",' + text[1:] + b"\n"


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


def test_a_first_line_that_is_torn_is_no_reason_to_refuse(path, lines):
    path.write_bytes(lines[0][:100])
    with pytest.warns(RuntimeWarning, match=r"line 1 \(it is not JSON\)"):
        Records(path).append(result())
    assert path.read_bytes().count(b"\n") == 2


def test_a_whole_last_line_without_its_end_is_kept(path, lines):
    path.write_bytes(b"".join(lines).rstrip())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = Records(path)
        records.append(result())
        assert len(records) == len(Records(path)) == len(lines) - 1
        assert len(records.verdicts) == 1


def test_a_full_disk_leaves_the_file_as_it_was(path, lines, monkeypatch):
    path.write_bytes(b"".join(lines))
    records = Records(path)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(RecordError, match="cannot be written: No space left"):
        records.append(result())
    assert path.read_bytes() == b"".join(lines)


def test_many_damaged_lines_are_one_warning(path, lines):
    path.write_bytes(b"".join([*lines, *[b"{}\n"] * 50]))
    with pytest.warns(RuntimeWarning) as told:
        Records(path)
    (warning,) = told
    first = len(lines) + 1
    said = ", ".join(f"{first + i} (it has no checksum)" for i in range(3))
    assert str(warning.message) == f"{path}: 50 damaged lines left out: line {said} and 47 more"


def _in_place(chance: random.Random, value: Any) -> None:
    """Change one thing somewhere in JSON."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if not inner:
        return
    key, old = chance.choice(inner)
    how = chance.randrange(5)
    if isinstance(old, list | dict) and old and chance.random() < 0.95:
        _in_place(chance, old)
    elif how == 0:
        del value[key]
    elif how == 1:
        value[key] = chance.choice(inner)[1]
    elif how == 2 and isinstance(old, int):
        value[key] = chance.choice([old + 1, old - 1, 2 * old, 0, 1, 2, 4, 8, 32])
    elif how == 3 and isinstance(old, str):
        value[key] = chance.choice(["Unroll", "Parallel", "Fuse", "None", "main", "b0", "l1", "v2"])
    else:
        odd = [0, -1, 1.5, 1e308, 10**30, True, None, "x", [], {}, "\ud800"]
        value[key] = chance.choice(odd)


def _mutated(chance: random.Random, lines: list[bytes]) -> bytes:
    """Change a file: its bytes, a line's length, or what a line says, with a checksum that fits."""
    lines = list(lines)
    how, at = chance.randrange(8), chance.randrange(len(lines))
    if how == 0:
        data = bytearray(b"".join(lines))
        for _ in range(chance.choice([1, 10, 200])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)
    if how == 1:
        lines[at] = lines[at][: chance.randrange(len(lines[at]))] + b"\n" * chance.randrange(2)
        return b"".join(lines)
    fields = json.loads(lines[at])
    del fields["check"]
    trace = fields.get("trace", [[], []])
    if how < 6 or not trace[1]:
        _in_place(chance, trace[0] if how > 2 and trace[0] else fields)
    else:  # another schedule, which may well be a sound one
        decision = chance.choice(trace[1])
        if isinstance(decision[1], list):
            chance.shuffle(decision[1])
        else:
            decision[1] = chance.randrange(4)
    try:
        lines[at] = encode(fields)
    except (ValueError, UnicodeError):
        lines[at] = json.dumps(fields).encode() + b"\n"
    return b"".join(lines)


def test_random_mutations(path, lines):
    """Every one is read or refused; whatever schedule is taken computes what it should."""
    chance = random.Random(fresh(SEED))
    known = {json.dumps(_decode(line)[1].get("trace")) for line in lines}
    wanted, name = helpers.run(MODULE), _decode(lines[0])[1]["id"]
    refused = warned = computed = replayed = failed = 0
    count = examples(1000)
    for _ in range(count):
        path.write_bytes(_mutated(chance, lines))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                records = Records(path)
                records.verdict(name, TARGET)
                best = records.best(name, TARGET)
            except RecordError:
                refused += 1
                continue
        assert {warning.category for warning in told} <= {RuntimeWarning}
        warned += bool(told)
        decided = [one for one in records.verdicts if one.trace is not None]
        for one in (*records.results(), *decided):
            text = json.dumps(one.trace)
            if text in known:
                continue
            known.add(text)
            replayed += 1
            try:
                sch = replay(MODULE, one.trace)
            except RecordError:
                refused += 1
                continue
            if computed < 30 or one is best:
                try:
                    found = helpers.run(sch.mod)
                except Exception:  # whatever TVM raises: an error, and no wrong answer
                    failed += 1
                    continue
                computed += 1
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert refused > count / 10
    assert warned > count / 10
    assert replayed > count / 5
    assert computed >= count / 50
    assert failed <= 3
