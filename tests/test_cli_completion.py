"""Completion, in the shells themselves."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers_cli import Program, commands

FILES = ("model.onnx", "of mine.onnx", "script")


@pytest.fixture
def script(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Path:
    path = tmp_path / "script"
    path.write_text(Program(capsys)(f"completion {request.param}").out)
    (tmp_path / "model.onnx").touch()
    (tmp_path / "of mine.onnx").touch()
    return path


def completed(script: Path, line: str) -> set[str]:
    """Ask bash what the last word of a line can be."""
    words = shlex.split(line) + [""] * line.endswith(" ")
    code = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({shlex.join(words)}); "
        f"COMP_CWORD={len(words) - 1}; _tvmlab; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-uc", code],
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(filter(None, done.stdout.split("\n")))


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("tvmlab co", {"compile", "completion"}),
        ("tvmlab rpc-", {"rpc-server", "rpc-tracker"}),
        ("tvmlab --v", {"--version"}),
        (
            "tvmlab compile --desired-layout ",
            {"NCHW", "NHWC", *FILES},
        ),
        ("tvmlab tune --tuner g", {"ga", "gridsearch"}),
        ("tvmlab compile --target ", set(FILES)),
        ("tvmlab run --inputs of", {"of mine.onnx"}),
        ("tvmlab compile --json --tar", {"--target"}),
        ("tvmlab compile mod", {"model.onnx"}),
        ("tvmlab compile m", {"model.onnx", "mobilenet_v2"}),
        ("tvmlab bench digits_resnet res", {"resnet18_v2", "resnet50_v2", "resnet8"}),
        ("tvmlab compile of", {"of mine.onnx"}),
        ("tvmlab show m --form", {"--format"}),
        ("tvmlab show m --format rel", {"relax", "relay"}),
        ("tvmlab completion b", {"bash"}),
        ("tvmlab compile --cross", {"--cross-compiler", "--cross-compiler-options"}),
        ("tvmlab nonsense --", set()),
    ],
)
def test_bash(script: Path, line: str, wanted: set[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash: not on this machine")
    assert completed(script, line) == wanted


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_knows_every_command(script: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash: not on this machine")
    assert completed(script, "tvmlab ") == {*commands(), "-h", "--help", "--version"}


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh(script: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh: not on this machine")
    code = (
        "compdef() {}; compadd() { shift; print -l -- $@ }; _files() {}; "
        f"source {shlex.quote(str(script))}; words=(tvmlab tune --tuner ''); CURRENT=4; _tvmlab"
    )
    done = subprocess.run(["zsh", "-fc", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["xgb", "ga", "random", "gridsearch"]
