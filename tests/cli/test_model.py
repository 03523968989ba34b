"""The commands do what the package's functions do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi

import tvmlab
from tests.cli.program import Program
from tests.oracles.models import array, convolutional, dense, model, node
from tests.runtime.servers import KEY, server
from tvmlab import models
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.qnn.transform import FakeQuantizationToInteger

pytestmark = pytest.mark.usefixtures("own_models")

INPUT = array(1, 3, 8, 8)


def write_open_model(**inputs: tuple[str | int, ...]) -> None:
    """Write open.onnx, a model with these inputs and as many outputs."""
    nodes = [node("Relu", [name], [f"of_{name}"]) for name in inputs]
    made = model(nodes, inputs, [f"of_{name}" for name in inputs])
    Path("open.onnx").write_bytes(made.SerializeToString())


def test_compile_and_run_give_what_the_functions_give(program: Program, package: str) -> None:
    done = program("compile conv.onnx -o conv.so --json")
    assert done.code == 0
    assert done.data["output"] == "conv.so"
    assert done.data["bytes"] == Path("conv.so").stat().st_size
    assert done.data["inputs"] == [{"name": "x", "shape": [1, 3, 8, 8], "dtype": "float32"}]
    assert done.data["outputs"][0]["shape"] == [1, 4]
    assert done.data["target"]["kind"] == "llvm"
    assert {one["rule"] for one in done.data["functions"]} > {"Contraction"}
    np.savez("in.npz", x=INPUT)
    done = program("run conv.so -i in.npz -o out.npz --print-top 2 --json")
    wanted = tvmlab.load_executable(package)(INPUT)
    with np.load("out.npz") as out:
        np.testing.assert_array_equal(out["y"], wanted)
    places = np.argsort(-wanted[0])[:2]
    assert [one["class"] for one in done.data["top"]] == list(places)
    assert [one["value"] for one in done.data["top"]] == [wanted[0, p].item() for p in places]
    assert done.data["outputs"] == [{"name": "y", "shape": [1, 4], "dtype": "float32"}]
    text = program("run conv.so -i in.npz --print-time --repeat 2").out.splitlines()
    assert text[0].startswith("y: float32[1, 4], from ")
    assert text[1].startswith("time: ")
    assert text[1].endswith("2 samples)")


def test_code_is_dumped(program: Program) -> None:
    line = "compile conv.onnx --target 'llvm -mcpu=x86-64-v3' -o a.so --dump-code "
    done = program(line + "relax,relay,tir,ll,asm,asm")
    assert done.code == 0, done.err
    mod = tvmlab.load(convolutional())
    assert tvm_ffi.structural_equal(tvmlab.load("a.so.relay"), mod, map_free_vars=True)
    read = tvm.script.from_source(Path("a.so.relax").read_text())
    assert tvm_ffi.structural_equal(read, mod, map_free_vars=True)
    assert "T.vectorized(" in Path("a.so.tir").read_text()
    assert 'target-cpu"="x86-64-v3"' in Path("a.so.ll").read_text()
    assert ".globl" in Path("a.so.asm").read_text()
    assert len(list(Path().glob("a.so*"))) == 6


def test_open_shapes(program: Program) -> None:
    Path("open.onnx").write_bytes(dense(batch="batch").SerializeToString())
    done = program("compile open.onnx --input-shapes x:[n,4] --json")
    assert done.data["inputs"][0]["shape"] == ["n", 4]
    np.save("rows.npy", array(3, 4))
    done = program("run module.so -i rows.npy --print-top 1 --json")
    assert done.data["outputs"][0]["shape"] == [3, 3]
    assert [one["row"] for one in done.data["top"]] == [0, 1, 2]
    assert program("run module.so --fill zeros --json").data["outputs"][0]["shape"] == [1, 3]
    np.save("none.npy", array(0, 4))
    done = program("run module.so -i none.npy --print-top 1")
    assert done.out == "y: float32[0, 3]\nrow  class  value  name\n"


@pytest.mark.parametrize("command", ["run", "profile", "bench", "compile", "tune -o x"])
def test_the_error_for_open_shapes_names_the_option(command: str, program: Program) -> None:
    write_open_model(image=("n", 3), fixed=(2, 2), extra=("m", 4))
    said = program(f"{command} open.onnx").said
    assert "input 'image' has open dimensions: (n, 3); input 'extra' has open" in said
    advised = '--input-shapes "image:[n,3] extra:[m,4]"'
    assert f"to do: pass {advised}, with a number" in said


@pytest.mark.parametrize("form", ["operators", "relax", "relay"])
def test_a_model_is_shown_with_its_open_sizes(form: str, program: Program) -> None:
    write_open_model(image=("n", 3), extra=("n", 4))
    done = program(f"show open.onnx --format {form}")
    assert done.code == 0, done.err
    assert "relu" in done.out
    if form == "relax":
        assert 'image: R.Tensor((n, 3), dtype="float32")' in done.out
        fixed = program(f"show open.onnx --format {form} --input-shapes image:[5,3]").out
        assert 'image: R.Tensor((5, 3), dtype="float32"), extra: R.Tensor((n, 4)' in fixed


@pytest.mark.parametrize("form", ["relax", "relay"])
def test_a_model_that_is_written_is_read_again(form: str, program: Program) -> None:
    mod = tvmlab.load(models.digits_resnet())
    assert program(f"show digits_resnet --format {form} -o whole").code == 0
    text = Path("whole").read_text()
    again = tvmlab.load("whole") if form == "relay" else tvm.script.from_source(text)
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)
    shown = program(f"show digits_resnet --format {form}").out
    assert len(shown) < len(text) / 10
    assert program(f"show digits_resnet --format {form} --json").data["text"] in shown


def test_a_package_is_described(program: Program, package: str) -> None:
    done = program(f"show {package} --json")
    assert done.data["inputs"][0]["name"] == "x"
    assert set(done.data["work"]) == set(tvmlab.load_executable(package).work)
    assert "x: float32[1, 3, 8, 8]" in program(f"show {package}").out
    assert "a package of compiled code" in program(f"show {package} --format relax").said


def test_partition(program: Program) -> None:
    done = program("partition resnet8 -o cut --json")
    assert done.code == 0, done.err
    assert done.data["regions"] == 1
    assert done.data["macs_share"] == 1.0
    assert done.data["cycles"] == sum(one["cycles"] for one in done.data["layers"])
    assert "Codegen" in Path("cut").read_text()
    made = program("compile resnet8 --target 'npu, llvm' -o cut.so")
    assert made.err == ""
    assert "for npu, llvm" in made.out
    integers = FakeQuantizationToInteger()(tvmlab.load(resnet8_tflite()))
    run = tvmlab.compile(integers, "npu, llvm")
    data = np.random.default_rng(3).integers(-128, 128, (1, 32, 32, 3)).astype(np.int8)
    np.savez("in.npz", **{run.signature.inputs[0].name: data})
    assert program("run cut.so -i in.npz -o out.npz").code == 0
    with np.load("out.npz") as out:
        np.testing.assert_array_equal(out[out.files[0]], run(data))


def test_a_package_runs_on_a_server_without_a_tracker(program: Program, package: str) -> None:
    running = server(None)
    try:
        address = running.until("serving").rpartition(" ")[2]
        line = f"run {package} --rpc-server {address} --rpc-key {KEY} --fill random --json"
        there = program(line)
        assert there.code == 0, there.err
        assert there.data == program(f"run {package} --fill random --json").data
    finally:
        running.end()
    assert program(line).said.startswith("tvmlab: no server answers at this address")


def test_another_linker(program: Program) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++: not on this machine")
    line = "compile dense.onnx -o a.so --cross-compiler"
    assert program(f"{line} g++", "--cross-compiler-options", "-O2 -g").code == 0
    assert program("run a.so --fill ones").code == 0
    assert "no-such-linker" in program(f"{line} no-such-linker").said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "compile dense.onnx --target 'bnns, llvm'",
            "'bnns', before the comma, is not a known backend; known: npu",
        ),
        ("compile dense.onnx --target 'llvm -mcpuu=x'", "it has cl-opt"),
        ("compile dense.onnx --target 'npu, llvm -mcpu=x'", "a processor named 'x'"),
        ("compile digits_resnet -o no/such/folder/a.so", "there is no folder for the output"),
        ("compile digits_resnet --tuning-records none.jsonl", "no such file (none.jsonl)"),
        ("compile old.onnx -o old.onnx", "the output would replace an input (old.onnx)"),
        ("show resnet50v2", "the networks of the workbook are digits_resnet, "),
        ("show digits_resnet --input-shapes datum:[1]", "no input named 'datum'"),
        ("compile digits_resnet -o a.tar", "its name has to end in .so (a.tar); to do: save it as"),
        ("run none.so --fill ones", "there is no such file (none.so)"),
        ("tune dense.onnx -o r.jsonl --rpc-tracker nonsense", "its host and its port"),
        ("run dense.onnx", "to do: pass x: float32[2, 4] in an .npz file with -i"),
        (
            "run dense.onnx --fill ones --rpc-server 127.0.0.1:1",
            "a server runs packages only, and this is a model (dense.onnx); to do: compile it "
            "first: tvmlab compile dense.onnx -o PACKAGE.so",
        ),
    ],
)
def test_errors_in_words(line: str, words: str, program: Program) -> None:
    Path("old.onnx").write_bytes(b"not a model")
    done = program(line)
    assert words in done.said
    assert done.out == ""
    assert Path("old.onnx").read_bytes() == b"not a model"


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
    done = program(f"profile {package} --repeat 1 --flame calls.folded --trace trace.json --json")
    assert done.code == 0, done.err
    assert json.loads(Path("trace.json").read_text())
    assert Path("calls.folded").read_text().startswith("main ")
