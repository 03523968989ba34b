"""Every command line of a ``--help`` and of the README works unchanged."""

from __future__ import annotations

import itertools
import re
import shlex
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.cli.program import Program, commands
from tests.runtime.servers import Running
from tests.short import long

FOREVER = ("rpc-server", "rpc-tracker")
README = Path(__file__).resolve().parents[2] / "README.md"


def examples(name: str) -> list[str]:
    """The lines of a command's example."""
    epilog = commands()[name].epilog or ""
    return [line.strip() for line in epilog.splitlines()[1:]]


LINES = {name: examples(name) for name in sorted(set(commands()) - set(FOREVER))}
LINES["README"] = re.findall(r"^tvmlab .*", README.read_text(encoding="utf-8"), re.MULTILINE)


# `test_model.py` runs these two as well.
NAMES = [pytest.param(x, marks=long) if x in ("bench", "tune") else x for x in LINES]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_in_an_empty_folder(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert LINES[name]
    for line in LINES[name]:
        program, *words = shlex.split(line)
        assert program == "tvmlab"
        words, file = (words[:-2], words[-1]) if ">" in words else (words, "")
        done = Program(capsys)(shlex.join(words))
        assert done.code == 0, (line, done.err)
        assert done.err == ""
        assert done.out
        if file:
            Path(file).write_text(done.out)
        for option, path in itertools.pairwise(words):
            if option in ("-o", "--trace", "--flame"):
                assert Path(path).stat().st_size > 0


def test_the_examples_of_rpc_run() -> None:
    (tracker,), (server,) = examples("rpc-tracker"), examples("rpc-server")
    assert tracker.split()[-1] == server.rpartition(":")[2] == "9190"
    try:
        socket.create_server(("127.0.0.1", 9190)).close()
    except OSError:
        pytest.skip("port 9190, which the examples name: it is taken")
    started = []
    try:
        for line, word in ((tracker, "tracking at"), (server, "serving tvmlab")):
            started.append(Running([sys.executable, "-m", *shlex.split(line)]))
            started[-1].until(word)
        for running in reversed(started):
            running.send(signal.SIGTERM)
            assert running.process.wait(300) == 0
    finally:
        for running in started:
            running.end()
