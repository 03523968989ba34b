"""The command itself: how it starts, reads its options, prints, fails, ends and completes."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program, commands
from tvmlab import cli
from tvmlab.cli.commands import COMMANDS
from tvmlab.errors import InputError

NAMES = sorted(commands())


def test_help_imports_neither_tvm_nor_numpy() -> None:
    """The imports make a command slow, and they can be counted."""
    code = (
        "import contextlib, io, sys\n"
        "before = set(sys.modules)\n"
        "from tvmlab.cli import main\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main([name, '--help'] if name else ['--help'])\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - sys.stdlib_module_names))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, "", *NAMES],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    assert done.stdout == "['tvmlab']\n"


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, program: Program) -> None:
    done = program(f"{name} --help")
    assert done.code == 0
    assert f"usage: tvmlab {name}" in done.out
    assert f"\n  tvmlab {name} " in done.out.partition("\nexample:")[2]
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize(
    "line",
    [
        *("", "nonsense", "compile", "compile x --bogus", "tune digits_resnet", "--js show x"),
        *("show digits_resnet --format svg", "run x --repeat 0", "run x --print-top many"),
        *("compile x --dump-code relax,llvm", "compile x --input-shapes x:[1", "completion fish"),
        *("compile x --desired-layout NC", "bench", "run x --fill noise", "compile one two"),
        # The two servers run until they are ended, and have no answer.
        *("rpc-server --json", "rpc-tracker --json"),
    ],
)
def test_wrong_usage(line: str, program: Program) -> None:
    done = program(line)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("usage: tvmlab")
    assert "error:" in done.err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("tune m.onnx --trails 3 -o x", "--trails; did you mean --trials?"),
        ("run d.so --pirnt-top=1", "--pirnt-top; did you mean --print-top?"),
        (
            "compile m --target npu, llvm -mcpu=x86-64-v3",
            '-mcpu; quote a target that has spaces: --target "llvm -mcpu=x86-64-v3"',
        ),
    ],
)
def test_a_wrong_option(line: str, wanted: str, program: Program) -> None:
    said = program(line).err.splitlines()[-1]
    assert said == f"tvmlab {line.split()[0]}: error: unrecognized argument {wanted}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("data:[1,3,224,224]", {"data": (1, 3, 224, 224)}),
        ("a:[1, 2] b:[n,0],c:[]", {"a": (1, 2), "b": ("n", 0), "c": ()}),
        ("input:0:[7]", {"input:0": (7,)}),
    ],
)
def test_shapes(text: str, wanted: dict[str, Any]) -> None:
    found = cli.parser().parse_args(["compile", "m", "--input-shapes", text])
    assert found.input_shapes == wanted


def test_an_error_is_one_line(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    done = program("show", str(path))
    assert done.said.startswith(f"tvmlab: there is no such file ({path}); to do: check the path")
    more = program("show --verbose", str(path))
    assert more.code == 1
    assert more.err.startswith(done.err)
    assert "Traceback" in more.err


def answers(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    """Make `tvmlab show` return or raise something else."""

    def run(_: Any) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result()

    monkeypatch.setitem(COMMANDS, "show", (run, COMMANDS["show"][1]))


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (InputError("a\nb", where="c\td", fix="e"), "a b (c d); to do: e"),
        (InputError("A."), "A"),
        (OSError(28, "No space left on device", "x"), "[Errno 28] No space left on device: 'x'"),
        (
            ZeroDivisionError("by\n\x1b[31mnothing"),
            "internal error: ZeroDivisionError: by; to do: --verbose prints the traceback",
        ),
    ],
)
def test_any_error_is_one_line(
    error: Exception, wanted: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, error)
    assert program("show x").said == f"tvmlab: {wanted}"


def test_ctrl_c(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned_into_another_error() -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError("half imported") from None

    for result in (KeyboardInterrupt(), turned_into_another_error):
        answers(monkeypatch, result)
        assert program("show x") == (130, "", "tvmlab: interrupted\n")


def test_warnings_are_lines(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        warnings.warn("mind\nthis", stacklevel=1)
        return "text", {}

    answers(monkeypatch, run)
    assert program("show x") == (0, "text\n", "tvmlab: note: mind this\n")


def test_json_is_alone_and_strict(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        print("progress")
        return "text", {"a": (1, float("inf"), float("nan")), "b": {2: "ü"}, "c": True}

    answers(monkeypatch, run)
    done = program("show x --json")
    assert done.data == {"a": [1, None, None], "b": {"2": "ü"}, "c": True}
    assert done.err == "progress\n"
    assert program("show x").out == "progress\ntext\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash: not on this machine")
def test_completion_in_bash(program: Program, tmp_path: Path) -> None:
    script = tmp_path / "tvmlab.bash"
    script.write_text(program("completion bash").out)
    (tmp_path / "model.onnx").touch()
    for line, wanted in {
        "tvmlab ": NAMES,
        "tvmlab co": ["compile", "completion"],
        "tvmlab compile --desired-layout ": ["NCHW", "NHWC"],
        "tvmlab compile --tar": ["--target"],
        "tvmlab compile mod": ["model.onnx"],
        "tvmlab run d.so -i mod": ["model.onnx"],
        "tvmlab tune model.onnx --tuner g": ["ga", "gridsearch"],
    }.items():
        words = [*line.split(), *([""] if line.endswith(" ") else [])]
        code = (
            f"source ./tvmlab.bash; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
            "_shtab_tvmlab; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert sorted(done.stdout.split()) == wanted, line
