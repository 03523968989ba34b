"""`tvmlab tune`, `bench` and `profile` do what the package's functions do."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmlab
from tests.cli.program import Program
from tvmlab import models

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tvmlab.compile(tvmlab.load(models.digits_resnet()))
    return str(made.save(tmp_path_factory.mktemp("package") / "digits.so"))


def test_tune(program: Program) -> None:
    line = "tune digits_resnet -o r.jsonl --trials 2 --total-trials 2 --tuner random --json"
    done = program(line)
    assert done.code == 0, done.err
    assert done.data["measured"] == 2
    assert done.data["records"] == "r.jsonl"
    assert {"name", "calls", "rule", "tuned", "decided"} <= set(done.data["tasks"][0])
    assert len(Path("r.jsonl").read_text().splitlines()) >= 2
    assert program("compile digits_resnet --tuning-records r.jsonl").code == 0
    before = Path("r.jsonl").read_text()
    assert program(line).data["measured"] == 0
    assert Path("r.jsonl").read_text() == before
    assert program(f"{line} --again").data["measured"] == 0
    assert Path("r.jsonl").read_text().startswith(before)
    assert Path("r.jsonl").read_text().count('"kind":"verdict"') > before.count('"kind":"verdict"')


def test_bench(program: Program, package: str) -> None:
    Path("digits.onnx").write_bytes(models.digits_resnet().proto.SerializeToString())
    line = f"bench {package} digits_resnet {package} --peer digits.onnx --repeat 2"
    done = program(f"{line} --json")
    names = [package, "digits_resnet", f"{package} (2)", "ONNX Runtime"]
    assert list(done.data["seconds"]) == names
    assert all(len(one["samples"]) == 2 for one in done.data["seconds"].values())
    assert "over ONNX Runtime" in program(line).out
    assert program(f"bench {package} --repeat 2").out.endswith("2 samples)\n")


def test_profile(program: Program, package: str) -> None:
    done = program(f"profile {package} --repeat 1 --flame flame.svg --trace trace.json --json")
    assert done.code == 0, done.err
    assert done.data["written"] == {"trace": "trace.json", "flame": "flame.svg"}
    assert Path("flame.svg").read_text().lstrip().startswith("<")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bench none.so", "there is no such file (none.so)"),
        ("bench digits_resnet -i none.npy", "there is no such file (none.npy)"),
        ("bench digits_resnet --peer none.onnx", "there is no such file (none.onnx)"),
        ("profile digits_resnet --trace no/a", "there is no folder for the output (no/a)"),
        ("tune digits_resnet -o no/a", "there is no folder for the output (no/a)"),
        ("tune digits_resnet -o r --rpc-key x", "--rpc-key has no effect without --rpc-tracker"),
        ("tune digits_resnet -o r.jsonl --rpc-tracker nonsense", "its host and its port"),
        ("rpc-server --key ''", "tvmlab: a key is one word (''); to do: pass --key my-laptop"),
    ],
)
def test_errors_in_words(line: str, words: str, program: Program) -> None:
    done = program(line)
    assert words in done.said
    assert done.out == ""
