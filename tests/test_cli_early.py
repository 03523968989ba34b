"""What can be refused at once is refused before anything long, and before anything is written."""

from __future__ import annotations

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


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
