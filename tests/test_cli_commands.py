"""What the commands do is what the package's functions do."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from helpers_cli import Program
from helpers_rpc import KEY, farm, server
from helpers_short import long

import tvmlab
from tvmlab import bench, models
from tvmlab.cli import arguments
from tvmlab.tuning.report import Report, TaskReport

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tvmlab.compile(tvmlab.load(models.digits_resnet()))
    return str(made.save(tmp_path_factory.mktemp("package") / "digits.tar"))


PICTURES = models.digits().x_test[:3]


def test_compile_and_run_give_what_the_functions_give(program: Program) -> None:
    done = program("compile digits_resnet -o digits.tar --json")
    assert done.code == 0
    assert done.data["output"] == "digits.tar"
    assert done.data["bytes"] == Path("digits.tar").stat().st_size
    assert done.data["inputs"] == [{"name": "data", "shape": [1, 1, 8, 8], "dtype": "float32"}]
    assert done.data["outputs"][0]["shape"] == [1, 10]
    assert done.data["target"]["kind"] == "llvm"
    assert {one["rule"] for one in done.data["functions"]} > {"Contraction"}
    np.savez("picture.npz", data=PICTURES[:1])
    done = program("run digits.tar -i picture.npz -o out.npz --print-top 2 --json")
    wanted = tvmlab.compile(tvmlab.load(models.digits_resnet()))(PICTURES[:1])
    with np.load("out.npz") as out:
        np.testing.assert_array_equal(out["logits"], wanted)
    places = np.argsort(-wanted[0])[:2]
    assert [one["class"] for one in done.data["top"]] == list(places)
    assert [one["value"] for one in done.data["top"]] == [wanted[0, p].item() for p in places]
    assert done.data["outputs"] == [{"name": "logits", "shape": [1, 10], "dtype": "float32"}]
    assert program("run --inputs picture.npz --output tutorial.npz digits.tar").code == 0
    with np.load("tutorial.npz") as out:
        np.testing.assert_array_equal(out["logits"], wanted)
    text = program("run digits.tar -i picture.npz --print-time --repeat 2").out.splitlines()
    assert text[0].startswith("logits: float32[1, 10], from ")
    assert text[1].startswith("time: ")
    assert text[1].endswith("2 samples)")


def test_code_is_dumped(program: Program) -> None:
    line = "compile digits_resnet --target 'llvm -mcpu=x86-64-v3' -o a.tar --dump-code "
    done = program(line + "relax,relay,tir,ll,asm,asm")
    assert done.code == 0, done.err
    mod = tvmlab.load(models.digits_resnet())
    assert tvm_ffi.structural_equal(tvmlab.load("a.tar.relay"), mod, map_free_vars=True)
    read = tvm.script.from_source(Path("a.tar.relax").read_text())
    assert tvm_ffi.structural_equal(read, mod, map_free_vars=True)
    loops = tvm.script.from_source(Path("a.tar.tir").read_text())
    assert {var.name_hint for var in loops.get_global_vars()} == {
        kernel.name for kernel in tvmlab.compile(mod).summary().kernels
    }
    assert all(isinstance(func, tvm.tirx.PrimFunc) for func in loops.functions.values())
    assert "T.vectorized(" in Path("a.tar.tir").read_text()
    assert 'target-cpu"="x86-64-v3"' in Path("a.tar.ll").read_text()
    assert ".globl" in Path("a.tar.asm").read_text()
    assert sorted(path.name for path in Path().iterdir()) == [
        *("a.tar", "a.tar.asm", "a.tar.ll", "a.tar.relax", "a.tar.relay", "a.tar.tir"),
    ]


@pytest.mark.parametrize("layout", [pytest.param("NCHW", marks=long), "NHWC"])
def test_a_layout_keeps_the_numbers(layout: str, program: Program, package: str) -> None:
    assert program(f"compile digits_resnet -o l.tar --desired-layout {layout}").code == 0
    np.testing.assert_allclose(
        tvmlab.load_executable("l.tar")(PICTURES[:1]),
        tvmlab.load_executable(package)(PICTURES[:1]),
        rtol=1e-4,
        atol=1e-5,
    )


def test_shapes_and_a_file(program: Program) -> None:
    path = models.digits_resnet(batch=None).proto
    Path("open.onnx").write_bytes(path.SerializeToString())
    assert "has open dimensions" in program("compile open.onnx").said
    done = program("compile open.onnx --input-shapes data:[n,1,8,8] --json")
    assert done.data["inputs"][0]["shape"] == ["n", 1, 8, 8]
    np.save("pictures.npy", PICTURES)
    done = program("run module.tar -i pictures.npy --print-top 1 --json")
    assert done.data["outputs"][0]["shape"] == [3, 10]
    assert [one["row"] for one in done.data["top"]] == [0, 1, 2]
    text = program("run module.tar -i pictures.npy --print-top 2").out.splitlines()
    assert [line.split()[:2] for line in text[1:]] == [
        ["row", str(row)] for row in (0, 0, 1, 1, 2, 2)
    ]
    assert program("run module.tar --fill zeros --print-top 1").out.count("row") == 0
    assert program("run module.tar --fill zeros --json").data["outputs"][0]["shape"] == [1, 10]
    assert "no input named 'datum'" in program("show open.onnx --input-shapes datum:[1]").said


def test_a_file_goes_before_a_network_of_its_name(program: Program) -> None:
    Path("resnet8").write_text("nothing")
    assert "resnet8" in program("show resnet8").said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "compile none --target 'bnns, llvm -device=arm_cpu -mtriple=aarch64-linux-gnu'",
            "'bnns' is not known before a comma; known: npu",
        ),
        ("compile digits_resnet --target 'llvm -mcpuu=x'", "did you mean -mcpu?"),
        ("compile digits_resnet -o no/such/folder/a.tar", "No such file or directory"),
        ("compile digits_resnet --tuning-records none.jsonl", "none.jsonl"),
        ("run none.tar --fill ones", "there is no such file"),
        ("run none.onnx --fill ones", "there is no such file"),
        ("show digits_resnet --format relax -o no/such/a", "cannot be written"),
        ("bench none.tar", "there is no such file"),
        (
            "run none.tar --repeat 10",
            "(--repeat 10); to do: give --print-time, or leave --repeat out",
        ),
        ("run none.tar --rpc-key tvmlab", "--rpc-key says nothing without --rpc-tracker or"),
        (
            "tune none.onnx -o r.jsonl --rpc-key board",
            "--rpc-key says nothing without --rpc-tracker (--rpc-key board); to do: give "
            "--rpc-tracker, or leave --rpc-key out",
        ),
        ("rpc-server --key ''", "tvmlab: A key is a word (''); to do: --key my-laptop"),
        ("tune digits_resnet -o r.jsonl --rpc-tracker nonsense", "its host and its port"),
    ],
)
def test_what_goes_wrong(line: str, words: str, program: Program) -> None:
    done = program(line)
    assert words in done.said
    assert done.out == ""


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        (
            [(2.0, 1.0, True), (2.0, 2.0, True)],
            "of 2 functions 1 got a faster schedule\n"
            "next: tvmlab compile 'my net' --target 'llvm -num-cores=2' --tuning-records r.jsonl",
        ),
        (
            [(2.0, 2.0, True)],
            "of 1 function 0 got a faster schedule: the rules' schedules stay; more --trials look "
            "further",
        ),
        (
            [(2.0, 2.0, True), (2.0, 2.0, False)],
            "of 2 functions 0 got a faster schedule, and of 1 nothing is decided yet: more "
            "--trials go on where these ended",
        ),
    ],
)
def test_tuning_ends_in_what_it_means(
    times: list[tuple[float, float, bool]],
    wanted: str,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = tuple(
        TaskReport("f", 1, 1e6, rule, tuned, "", "", (), (rule,), (None,), decided)
        for rule, tuned, decided in times
    )
    monkeypatch.setattr(tvmlab, "tune", lambda *_, **__: Report(tasks, 1.0, 2))
    monkeypatch.setattr(arguments, "model", lambda _: None)
    done = program("tune 'my net' --target 'llvm -num-cores=2' -o r.jsonl")
    assert done.out.endswith(f"\n{wanted}\n")


def test_tune(program: Program) -> None:
    line = "tune digits_resnet -o r.jsonl --trials 2 --total-trials 2 --tuner random --json"
    done = program(line)
    assert done.code == 0, done.err
    assert done.data["measured"] == 2
    assert done.data["records"] == "r.jsonl"
    assert {"name", "trials", "rule_seconds", "tuned_seconds"} <= set(done.data["tasks"][0])
    assert len(Path("r.jsonl").read_text().splitlines()) >= 2
    assert program("compile digits_resnet --tuning-records r.jsonl").code == 0
    before = Path("r.jsonl").read_text()
    assert program(line).data["measured"] == 0
    assert Path("r.jsonl").read_text() == before
    assert program(f"{line} --again").data["measured"] == 0
    assert Path("r.jsonl").read_text().startswith(before)
    assert Path("r.jsonl").read_text().count('"kind":"verdict"') > before.count('"kind":"verdict"')


def test_tune_that_is_interrupted_says_where_it_goes_on(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tvmlab, "tune", interrupted)
    line = "tune digits_resnet -o r.jsonl"
    assert program(line) == (130, "", "tvmlab: interrupted\n")
    Path("r.jsonl").touch()
    assert program(line).code == 130
    assert "what was measured is in r.jsonl, and the same command goes on" in program(line).err


def test_bench(program: Program, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("digits.onnx").write_bytes(models.digits_resnet().proto.SerializeToString())
    done = program(f"bench {package} digits_resnet --peer digits.onnx --repeat 2 --json")
    assert set(done.data["seconds"]) == {package, "digits_resnet", "ONNX Runtime"}
    assert all(len(one["samples"]) == 2 for one in done.data["seconds"].values())
    found = bench.Measurement((1.0, 3.0))
    monkeypatch.setattr(bench, "compare", lambda rivals, **_: bench.Comparison({"x": found}))
    assert program(f"bench {package}").out == f"{found}\n"


def test_bench_takes_a_program_twice(program: Program, package: str) -> None:
    Path("digits.onnx").write_bytes(models.digits_resnet().proto.SerializeToString())
    shutil.copy(package, "ONNX Runtime")
    shutil.copy(package, "a.tar")
    line = "bench 'ONNX Runtime' a.tar a.tar a.tar --peer digits.onnx --repeat 1"
    assert list(program(f"{line} --json").data["seconds"]) == [
        *("ONNX Runtime", "a.tar", "a.tar (2)", "a.tar (3)", "ONNX Runtime (2)"),
    ]
    assert "a.tar (3)" in program(line).out
    assert "cannot read the model" in program(f"bench {package} --peer none.onnx").said


@pytest.mark.parametrize("form", ["relax", "relay"])
def test_what_is_shown_in_a_file_is_read_again(form: str, program: Program) -> None:
    mod = tvmlab.load(models.digits_resnet())
    assert program(f"show digits_resnet --format {form} -o whole").code == 0
    text = Path("whole").read_text()
    again = tvmlab.load("whole") if form == "relay" else tvm.script.from_source(text)
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)
    shown = program(f"show digits_resnet --format {form}").out
    assert len(shown) < len(text) / 10
    assert program(f"show digits_resnet --format {form} --json").data["text"] in shown


def test_partition(program: Program) -> None:
    done = program("partition resnet8 -o cut --json")
    assert done.code == 0, done.err
    assert done.data["regions"] == 1
    assert done.data["macs_share"] == 1.0
    assert done.data["cycles"] == sum(one["cycles"] for one in done.data["layers"])
    assert "Codegen" in Path("cut").read_text()
    # A network of floating-point numbers is none for it.
    assert program("partition digits_resnet --json").data["regions"] == 0
    note = "tvmlab: note: npu takes nothing of it: `tvmlab partition` says why\n"
    assert program("compile digits_resnet --target npu -o none.tar").err == note
    made = program("compile resnet8 --target 'npu, llvm' -o cut.tar")
    assert made.err == ""
    assert "for npu, llvm" in made.out
    one = program("run cut.tar --fill random --seed 3 -o one.npz")
    other = program("run resnet8 --fill random --seed 3 -o other.npz")
    assert one.code == other.code == 0
    with np.load("one.npz") as one_s, np.load("other.npz") as others:
        assert one_s.files == others.files  # the model's own name for it, cut or not
        difference = one_s[one_s.files[0]].astype(int) - others[others.files[0]]
    assert np.abs(difference).max() < 40  # integers throughout, or floats between the layers


def test_a_package_runs_on_a_server(program: Program, package: str) -> None:
    np.savez("picture.npz", data=PICTURES[:1])
    with farm(1) as (address, _):
        there = f"--rpc-tracker {address} --rpc-key {KEY}"
        done = program(f"run {package} {there} -i picture.npz -o out.npz --print-time --repeat 2")
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1].endswith("2 samples)")
        assert "a server runs packages" in program(f"run digits_resnet --fill ones {there}").said
        shaped = program(f"run {package} {there} --input-shapes data:[1,1,8,8]")
        assert "leave --input-shapes out" in shaped.said
    with np.load("out.npz") as out:
        wanted = tvmlab.load_executable(package)(PICTURES[:1])
        np.testing.assert_array_equal(out["logits"], wanted)


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


@pytest.mark.parametrize("options", ["", "-O2 -g"])
def test_another_linker(options: str, program: Program) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++: not on this machine")
    line = "compile digits_resnet -o a.tar --cross-compiler"
    assert program(f"{line} g++", "--cross-compiler-options", options).code == 0
    assert program("run a.tar --fill ones").code == 0
    assert program(f"{line} no-such-linker").said.count("no-such-linker") >= 1


def test_a_package_is_told_about(program: Program, package: str) -> None:
    done = program(f"show {package} --json")
    assert done.data["inputs"][0]["name"] == "data"
    assert json.dumps(done.data)
    wanted = {name: asdict(work) for name, work in tvmlab.load_executable(package).work.items()}
    assert done.data["work"] == wanted
    assert "data: float32[1, 1, 8, 8]" in program(f"show {package}").out
    assert "machine code" in program(f"show {package} --format relax").said


def test_a_target_that_is_no_cpu_is_told_about(program: Program) -> None:
    """The rules are not for it, and the wheel has no runtime that could run it."""
    done = program("compile digits_resnet --target opencl -o gpu.tar")
    assert done.code == 0
    assert done.err == (
        "tvmlab: note: tvmlab's rules are for CPUs: for opencl the loops are scheduled by TVM "
        "itself; this TVM runs nothing on opencl, so the package is for another\n"
    )
    assert done.out.splitlines()[1] == "functions: scheduled by TVM itself"
    assert "the library cannot be loaded here" in program("run gpu.tar --fill ones").said


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("c", "TVM takes no whole model to targets of kind 'c'"),
        ("vulkan", "this TVM was built without its code generator for 'vulkan'"),
    ],
)
def test_a_target_without_code_is_refused_first(target: str, wanted: str, program: Program) -> None:
    said = program(f"compile no-such.onnx --target {target} -o no.tar").said
    assert said.startswith(f"tvmlab: {wanted}")
    assert said.endswith("; to do: compile for llvm, or leave the target out for this machine")
    assert not Path("no.tar").exists()
