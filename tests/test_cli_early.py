"""What can be refused at once is refused before anything long, and before anything is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from helpers_cli import Program

import tvmlab
from tvmlab.cli import arguments
from tvmlab.errors import RelayError
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.relay import printer

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def nothing_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*_: Any, **__: Any) -> None:
        raise AssertionError("this takes long")

    for name in ("compile", "tune", "load_executable"):
        monkeypatch.setattr(tvmlab, name, long)


def test_a_quantized_model_is_shown_as_relay_had_it(program: Program) -> None:
    assert program("show resnet8 --format relay -o r8.relay").code == 0
    wanted = arguments.integers(tvmlab.load(resnet8_tflite()))
    assert tvm_ffi.structural_equal(tvmlab.load("r8.relay"), wanted, map_free_vars=True)
    assert "qnn.conv2d(" in program("show resnet8 --format relay").out
    done = program("compile resnet8 -o r8.tar --dump-code asm,relay --json")
    assert done.data["written"] == ["r8.tar.asm", "r8.tar.relay"]
    assert tvm_ffi.structural_equal(tvmlab.load("r8.tar.relay"), wanted, map_free_vars=True)


@pytest.mark.usefixtures("nothing_long")
def test_what_cannot_be_printed_is_not_compiled(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise RelayError("Relay has no such operator")

    monkeypatch.setattr(printer, "astext", fails)
    done = program("compile digits_resnet -o d.tar --dump-code relax,relay")
    assert "Relay has no such operator" in done.said
    assert list(Path().iterdir()) == []


def test_what_llvm_did_not_make_is_not_dumped(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tvmlab.compile(tvmlab.load(tvmlab.models.digits_resnet()))

    class Other:
        mod = type("Module", (), {"imports": ()})

    made.vm_executable = Other()
    monkeypatch.setattr(tvmlab, "compile", lambda *_, **__: made)
    assert "LLVM made nothing" in program("compile digits_resnet --dump-code relax,ll").said
    assert list(Path().iterdir()) == []


@pytest.mark.usefixtures("nothing_long")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run digits_resnet -i none.npz", "there is no such file (none.npz)"),
        ("profile digits_resnet -i none.png", "there is no such file (none.png)"),
        ("bench digits_resnet -i none.npy", "there is no such file (none.npy)"),
        ("compile digits_resnet --target 'llvm -mcpuu=x'", "did you mean -mcpu?"),
        ("compile digits_resnet --target 'npu, llvm -mcpu=x'", "a processor named 'x'"),
        ("compile digits_resnet --cross-compiler no-such-g++", "no-such-g++ is not installed"),
        ("compile digits_resnet -o no/a.tar", "No such file or directory (no/a.tar)"),
        ("compile digits_resnet -o folder", "Is a directory (folder)"),
        ("compile digits_resnet -o a --dump-code ll", "Is a directory (a.ll)"),
        ("run digits_resnet --fill ones -o file/a.npz", "Not a directory (file/a.npz)"),
        ("profile digits_resnet --trace no/a", "No such file or directory (no/a)"),
        ("profile digits_resnet --flame no/a", "No such file or directory (no/a)"),
        ("partition resnet8 -o no/a", "No such file or directory (no/a)"),
        ("show resnet8 -o no/a", "No such file or directory (no/a)"),
        ("compile digits_resnet -o closed/a", "Permission denied (closed/a)"),
    ],
)
def test_files_are_looked_at_first(
    line: str, words: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("folder", "a.ll", "closed"):
        Path(folder).mkdir()
    Path("file").touch()
    access = os.access  # whoever is root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: path != "closed" and access(path, mode))
    monkeypatch.setattr(arguments, "model", None)
    monkeypatch.setattr(arguments, "program", None)
    assert words in program(line).said
