"""Completion, in the shells themselves."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers_cli import Program, commands

from tvmlab.cli.compile import CODE

# What is among the words where these are files, for which the shell then looks.
LOOKED = "(files)"
FILES = ("compile", "model.onnx", "of mine.onnx", "script", LOOKED)


@pytest.fixture
def script(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Path:
    path = tmp_path / "script"
    path.write_text(Program(capsys)(f"completion {request.param}").out)
    (tmp_path / "model.onnx").touch()
    (tmp_path / "of mine.onnx").touch()
    (tmp_path / "compile").mkdir()  # no command
    return path


def completed(script: Path, line: str) -> set[str]:
    """Ask bash what the last word of a line can be."""
    words = [part for word in shlex.split(line) for part in re.split("(=)", word) if part]
    words += [""] * line.endswith(" ")
    code = (
        f"compopt() {{ printf '{LOOKED}\\n'; }}; "
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
        ("tvmlab compil", {"compile"}),
        ("tvmlab compile --desired-layout ", {"NCHW", "NHWC"}),
        ("tvmlab compile --dump-code ", {"relax", "relay", "tir", "ll", "asm"}),
        ("tvmlab compile --dump-code relax,", {"relax," + form for form in CODE}),
        ("tvmlab compile --dump-code relax,tir,a", {"relax,tir,asm"}),
        ("tvmlab compile --dump-code=relax,l", {"relax,ll"}),
        ("tvmlab compile --dump-code=nonsense,x", set()),
        ("tvmlab tune --tuner g", {"ga", "gridsearch"}),
        ("tvmlab tune --tuner xgb,g", set()),
        ("tvmlab run m --fill ", {"random", "zeros", "ones"}),
        ("tvmlab run m --fill=r", {"random"}),
        ("tvmlab run m --fill=", {"random", "zeros", "ones"}),
        ("tvmlab run m --repeat ", set()),
        ("tvmlab run m --repeat=", set()),
        ("tvmlab compile --target ", set()),
        ("tvmlab compile -o ", set(FILES)),
        ("tvmlab run --inputs of", {"of mine.onnx", LOOKED}),
        ("tvmlab run --inputs=of", {"of mine.onnx", LOOKED}),
        ("tvmlab compile --json --tar", {"--target"}),
        ("tvmlab compile mod", {"model.onnx", LOOKED}),
        ("tvmlab compile m", {"model.onnx", "mobilenet_v2", LOOKED}),
        ("tvmlab bench digits_resnet res", {"resnet18_v2", "resnet50_v2", "resnet8", LOOKED}),
        ("tvmlab compile of", {"of mine.onnx", LOOKED}),
        ("tvmlab show m --form", {"--format"}),
        ("tvmlab show m --format rel", {"relax", "relay"}),
        ("tvmlab completion b", {"bash"}),
        ("tvmlab completion s", set()),
        ("tvmlab rpc-server s", set()),
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
