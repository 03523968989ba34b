"""What the command advises can be done in the shell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers_cli import Program
from helpers_models import model, node

import tvmlab
from tvmlab.cli.advice import for_the_shell

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("command", ["run", "profile", "bench", "compile"])
def test_open_shapes_are_told_as_the_command_advises(command: str, program: Program) -> None:
    made = model([node("Relu", ["my x"], ["y"])], {"my x": ("n", 3)}, ["y"])
    Path("open.onnx").write_bytes(made.SerializeToString())
    more = {"run": " --fill ones", "profile": " --repeat 1", "bench": " --repeat 1"}
    line = f"{command} open.onnx{more.get(command, '')}"
    said = program(line).said
    advised = '--input-shapes "my x:[1,3]"'
    assert f"fix them with {advised}, or" in said
    assert said.endswith('--input-shapes "my x:[n,3]"')
    assert program(f"{line} {advised}").code == 0


@pytest.mark.parametrize("command", ["run", "compile", "show", "bench", "tune -o x"])
def test_a_network_that_is_nearly_named(command: str, program: Program) -> None:
    for name, meant in (("resnet50v2", "resnet50_v2"), ("Digits-ResNet", "digits_resnet")):
        assert program(f"{command} {name}").said == (
            "tvmlab: there is no such file, and no network of that name "
            f"({name}); to do: did you mean {meant}?"
        )
    assert "the networks are digits_resnet, " in program(f"{command} bert").said
    assert "there is no such file (bert.onnx)" in program(f"{command} bert.onnx").said


def test_arrays_are_no_model(program: Program) -> None:
    for name in ("x.npz", "x.npy"):
        said = program(f"show {name}").said
        assert said.startswith(f"tvmlab: this holds arrays, not a model ({name}); to do: ")
        assert "`tvmlab run MODEL -i FILE`" in said


def own(**inputs: tuple[str | int, ...]) -> None:
    """Write own.onnx, a model with these inputs and as many outputs."""
    nodes = [node("Relu", [name], [f"of_{name}"]) for name in inputs]
    made = model(nodes, inputs, [f"of_{name}" for name in inputs])
    Path("own.onnx").write_bytes(made.SerializeToString())


def test_all_open_inputs_are_advised_at_once(program: Program) -> None:
    own(image=("n", 3), fixed=(2, 2), extra=("m", 4))
    said = program("compile own.onnx").said
    assert "input 'image' has open dimensions: (n, 3); input 'extra' has open" in said
    advised = '--input-shapes "image:[1,3] extra:[1,4]"'
    assert f"fix them with {advised}, or keep them open" in said
    assert said.endswith('--input-shapes "image:[n,3] extra:[m,4]"')
    said = program('compile own.onnx --input-shapes "image:[7,3]"').said
    advised = '--input-shapes "image:[7,3] extra:[1,4]"'
    assert f"fix them with {advised}, or keep them open" in said
    done = program(f"compile own.onnx --json {advised}")
    assert [one["shape"] for one in done.data["inputs"]] == [[7, 3], [2, 2], [1, 4]]


@pytest.mark.parametrize("form", ["operators", "relax", "relay", "diagram"])
def test_a_model_is_shown_with_its_open_sizes(form: str, program: Program) -> None:
    own(image=("n", 3), extra=("n", 4))
    done = program(f"show own.onnx --format {form}")
    assert done.code == 0, done.err
    assert "relu" in done.out
    if form == "relax":
        assert 'image: R.Tensor((n, 3), dtype="float32")' in done.out
        fixed = program(f"show own.onnx --format {form} --input-shapes image:[5,3]").out
        assert 'image: R.Tensor((5, 3), dtype="float32"), extra: R.Tensor((n, 4)' in fixed


def test_why_a_size_cannot_stay_open_is_said(program: Program) -> None:
    made = model([node("CumSum", ["x", "a"], ["y"])], {"x": ("n", 3), "a": ("m",)}, ["y"])
    Path("own.onnx").write_bytes(made.SerializeToString())
    said = program("show own.onnx").said
    assert "TVM's importer cannot leave them open: TVM's importer failed on" in said
    assert said.endswith('to do: fix them with --input-shapes "x:[1,3] a:[1]"')


def test_a_package_keeps_its_shapes(program: Program) -> None:
    assert program("compile digits_resnet -o d.tar").code == 0
    done = program("run d.tar --fill ones --input-shapes data:[2,1,8,8]")
    assert "those that it was compiled for" in done.said


def test_an_array_that_does_not_fit_a_package(program: Program) -> None:
    own(image=("n", 3), extra=("n", 4))
    assert program("compile own.onnx -o own.tar --input-shapes 'image:[n,3] extra:[n,4]'").code == 0
    np.savez("bad.npz", image=np.ones((2, 3), np.float32), extra=np.ones((5, 4), np.float32))
    said = program("run own.tar -i bad.npz").said
    assert "input 'extra' has shape (5, 4), not (n, 4); n is 2, from 'image' (main(" in said
    assert said.endswith("compiled for another one: `tvmlab compile --input-shapes`")
    np.savez("bad.npz", image=np.ones((2, 4), np.float32), extra=np.ones((2, 4), np.float32))
    assert (
        "input 'image' has shape (2, 4), not (n, 3) (main("
        in program("run own.tar -i bad.npz").said
    )


def test_advice_names_options(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "compile digits_resnet"
    assert program(f"{line} --tuning-records no").said.endswith(
        "to do: `tvmlab tune -o FILE` makes it"
    )
    done = program(f"{line} --target 'llvm -mtriple=aarch64-linux-gnu'")
    assert done.said.endswith("a cross compiler: --cross-compiler aarch64-linux-gnu-g++")
    assert "(Debian: apt-get install g++-aarch64-linux-gnu)" in done.said
    assert program("show resnet8 --input-shapes x:[1]").said.endswith("leave --input-shapes out")

    def fails(*_: object, **__: object) -> None:
        raise ValueError("a pass")

    monkeypatch.setattr(tvmlab.compiler, "cut", fails)
    assert "to do: --verbose prints TVM's own error" in program(line).said


@pytest.mark.parametrize(
    ("fix", "wanted"),
    [
        ("give its shape: shapes={'x': (...)}", 'give its shape: --input-shapes "x:[...]"'),
        (
            "shapes={'x': (1,)} or shapes={'y:0': ()}",
            '--input-shapes "x:[1]" or --input-shapes "y:0:[]"',
        ),
        (
            "shapes={'x': (1,), 'y z': (...)}",
            '--input-shapes "x:[1] y z:[...]"',
        ),
        ("check the path", "check the path"),
    ],
)
def test_advice(fix: str, wanted: str) -> None:
    assert for_the_shell(fix) == wanted
