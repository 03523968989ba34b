"""`tvmlab tune`, `bench` and `profile` do what the package's functions do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import Program

pytestmark = pytest.mark.usefixtures("own_models")


def test_tune(program: Program) -> None:
    line = "tune dense.onnx -o r.jsonl --trials 2 --total-trials 2 --tuner random --json"
    done = program(line)
    assert done.code == 0, done.err
    assert done.data["measured"] == 2
    assert {"name", "calls", "rule", "tuned", "decided"} <= set(done.data["tasks"][0])
    assert len(Path("r.jsonl").read_text().splitlines()) >= 2
    assert program("compile dense.onnx --tuning-records r.jsonl").code == 0
    before = Path("r.jsonl").read_text()
    assert program(line).data["measured"] == 0
    assert Path("r.jsonl").read_text() == before
    assert program(f"{line} --again").data["measured"] == 0
    assert Path("r.jsonl").read_text().startswith(before)
    assert Path("r.jsonl").read_text().count('"kind":"verdict"') > before.count('"kind":"verdict"')


def test_bench(program: Program, package: str) -> None:
    line = f"bench {package} conv.onnx {package} --peer conv.onnx --repeat 2"
    done = program(f"{line} --json")
    names = [package, "conv.onnx", f"{package} (2)", "ONNX Runtime"]
    assert list(done.data["seconds"]) == names
    assert all(len(one["samples"]) == 2 for one in done.data["seconds"].values())
    assert "over ONNX Runtime" in program(line).out
    assert program(f"bench {package} --repeat 2").out.endswith("2 samples)\n")


def test_profile(program: Program, package: str) -> None:
    done = program(f"profile {package} --repeat 1 --flame flame.svg --trace trace.json --json")
    assert done.code == 0, done.err
    assert json.loads(Path("trace.json").read_text())
    assert Path("flame.svg").read_text().lstrip().startswith("<")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bench dense.onnx --peer none.onnx", "there is no such file (none.onnx)"),
        ("tune dense.onnx -o no/a", "there is no folder for the output (no/a)"),
        ("tune dense.onnx -o r.jsonl --rpc-tracker nonsense", "its host and its port"),
    ],
)
def test_errors_in_words(line: str, words: str, program: Program) -> None:
    done = program(line)
    assert words in done.said
    assert done.out == ""
