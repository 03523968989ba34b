"""What the command advises can be done in the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_cli import Program
from helpers_models import model, node

import tvmlab
from tvmlab.cli.advice import for_the_shell

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("command", ["run", "profile", "bench", "compile", "show"])
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


def test_a_package_keeps_its_shapes(program: Program) -> None:
    assert program("compile digits_resnet -o d.tar").code == 0
    done = program("run d.tar --fill ones --input-shapes data:[2,1,8,8]")
    assert "those that it was compiled for" in done.said


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
        ("check the path", "check the path"),
    ],
)
def test_advice(fix: str, wanted: str) -> None:
    assert for_the_shell(fix) == wanted
