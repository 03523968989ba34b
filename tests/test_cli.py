"""The program itself: how it starts, ends, and fails."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers_cli import Program, commands
from hypothesis import given
from hypothesis import strategies as st

from tvmlab import cli
from tvmlab.cli import arguments
from tvmlab.cli.answer import Answer, one_line, table
from tvmlab.cli.stage import stage
from tvmlab.errors import InputError, ModelError

NAMES = sorted(commands())


def test_the_commands() -> None:
    wanted = "bench compile completion partition profile rpc-server rpc-tracker run show tune"
    assert wanted.split() == NAMES


def test_help_imports_neither_tvm_nor_numpy() -> None:
    """What makes it slow is what is imported, and that can be counted."""
    code = (
        "import contextlib, io, sys\n"
        "before = set(sys.modules)\n"
        "from tvmlab.cli import main\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main([name, '--help'] if name else ['--help'])\n"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - sys.stdlib_module_names))\n"
        "slow = {'asyncio', 'dataclasses', 'inspect', 'json', 'tarfile', 'zipfile'}\n"
        "print(sorted(slow & roots))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, "", *NAMES],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    assert done.stdout.splitlines() == ["['tvmlab']", "[]"]


def test_a_command_imports_tvm_without_pytorch_and_can_import_it_after(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tvmlab.cli import main\n"
        "main(['show', 'digits_resnet', '-o', 'shown.txt'])\n"
        "print('tvm' in sys.modules, 'torch' in sys.modules)\n"
        "import torch, tvm\n"
        "print(tvm.runtime.from_dlpack(torch.ones(2, 3)).numpy().sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-2:] == ["True False", "6.0"]


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, program: Program) -> None:
    done = program(f"{name} --help")
    assert done.code == 0
    assert f"usage: tvmlab {name}" in done.out
    assert f"\n  tvmlab {name} " in done.out.partition("\nexample:")[2]
    assert max(map(len, done.out.splitlines())) <= 100


def test_versions(program: Program) -> None:
    done = program("--version")
    assert done.code == 0
    assert "apache-tvm 0." in done.out


@pytest.mark.parametrize(
    "line",
    [
        *("", "nonsense", "compile", "compile x --bogus", "tune digits_resnet", "--js show x"),
        *("show digits_resnet --format svg", "run x --repeat 0", "run x --print-top many"),
        *("compile x --dump-code relax,llvm", "compile x --input-shapes data", "completion fish"),
        *("compile x --desired-layout NC", "bench", "run x --fill noise"),
        # They serve until they are ended, and answer nothing.
        *("rpc-server --json", "rpc-tracker --json"),
        "run x --rpc-tracker 127.0.0.1:1 --rpc-server 127.0.0.1:2",
    ],
)
def test_wrong_usage(line: str, program: Program) -> None:
    done = program(line)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("usage: tvmlab")
    assert "error:" in done.err


def test_an_error_of_ours_is_a_line(program: Program, tmp_path: Path) -> None:
    done = program("show", str(tmp_path / "none.onnx"))
    assert done.said == (
        f"tvmlab: there is no such file ({tmp_path / 'none.onnx'}); to do: check the path"
    )
    more = program("show --verbose", str(tmp_path / "none.onnx"))
    assert more.code == 1
    assert more.err.startswith(done.err)
    assert "Traceback" in more.err
    assert "FileNotFoundError" in more.err


def answers(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    """Let `tvmlab show` do something else."""

    def run(_: Any) -> Answer:
        if isinstance(result, BaseException):
            raise result
        return result()  # type: ignore[no-any-return]

    monkeypatch.setattr(cli.show, "run", run)


def test_a_fault_of_ours_is_a_line_too(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, ZeroDivisionError("by\n\x1b[31mnothing"))
    done = program("show x")
    assert done.said.startswith("tvmlab: a fault of its own: ZeroDivisionError: by")
    assert "\x1b" not in done.err
    answers(monkeypatch, InputError("a\nb", where="c\td"))
    assert program("show x").said == "tvmlab: a b (c d)"
    for what, wanted in (("A.", "A (c)"), ("A ...", "A ... (c)")):
        answers(monkeypatch, InputError(what, where="c"))
        assert program("show x").said == f"tvmlab: {wanted}"
    answers(monkeypatch, InputError("A."))
    assert program("show x").said == "tvmlab: A."


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("line", ["compile digits_resnet", "run d.tar --fill ones"])
def test_no_folder_takes_temporary_files(
    line: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("compile digits_resnet -o d.tar").code == 0
    # Whoever is root may write to all that Python tries after TMPDIR.
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/missing"])
    assert program(line).said == (
        "tvmlab: temporary files cannot be written: No usable temporary directory found in "
        "['/missing']; to do: let TMPDIR name a folder that you may write to and that has space"
    )
    assert [path.name for path in Path().iterdir()] == ["d.tar"]


@pytest.mark.usefixtures("own_folder")
def test_a_temporary_folder_that_is_missing_is_in_nobodys_way(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes the next one."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/missing")
    assert program("compile digits_resnet -o d.tar").code == 0
    assert program("run d.tar --fill ones").code == 0


def test_ctrl_c(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, KeyboardInterrupt())
    assert program("show x") == (130, "", "tvmlab: interrupted\n")


def test_ctrl_c_that_a_library_turns_into_its_own_error(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def run() -> Answer:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError("half imported") from None
        raise AssertionError

    answers(monkeypatch, run)
    assert program("show x") == (130, "", "tvmlab: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("name", ["tvmlab.cli", "argparse", "tvmlab.cli.tune"])
def test_ctrl_c_before_the_commands_are_imported(name: str) -> None:
    """The program is started as its installed script does it, and interrupted at a known place."""
    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    value = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]["tvmlab"]
    code = (
        "import signal, sys\n"
        "from importlib.metadata import EntryPoint\n"
        "value, interrupted = sys.argv.pop(), sys.argv.pop()\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == interrupted:\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(EntryPoint('tvmlab', value, 'console_scripts').load()())\n"
    )
    line = [sys.executable, "-c", code, "--help", name, value]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tvmlab: interrupted\n")


def test_warnings_are_lines(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = warnings.showwarning

    def run() -> Answer:
        warnings.warn("mind\nthis", stacklevel=1)
        return Answer("text", {})

    answers(monkeypatch, run)
    assert program("show x") == (0, "text\n", "tvmlab: note: mind this\n")
    assert warnings.showwarning is shown


def test_json_is_alone_and_strict(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Answer:
        print("progress")
        return Answer("text", {"a": (1, float("inf"), float("nan")), "b": {2: "ü"}, "c": True})

    answers(monkeypatch, run)
    done = program("show x --json")
    assert done.data == {"a": [1, None, None], "b": {"2": "ü"}, "c": True}
    assert done.err == "progress\n"
    assert program("show x").out == "progress\ntext\n"


def test_a_reader_that_has_enough() -> None:
    line = [sys.executable, "-m", "tvmlab", "completion", "bash"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(300) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize(("to", "code", "said"), [(">&-", 1, "it is closed"), ("2>&-", 0, "")])
def test_streams_that_are_closed(to: str, code: int, said: str) -> None:
    line = f"exec {shlex.quote(sys.executable)} -m tvmlab show digits_resnet {to}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert done.returncode == code
    assert said in done.stderr
    assert ("conv2d" in done.stdout) == (not code)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full: not on this machine")
@pytest.mark.parametrize("words", [["completion", "bash"], ["--version"]])
def test_standard_output_that_is_full(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tvmlab", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "tvmlab: the answer cannot be printed: No space left on device (standard output); to do: "
        "let it go to a file or a program that takes it\n"
    )


def test_signs_that_standard_output_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, lambda: Answer("ü\udce4", {}))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.main(["show", "x"]) == 0
    assert written.getvalue() == b"\\xfc\\udce4\n"


# Small parts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("data:[1,3,224,224]", {"data": (1, 3, 224, 224)}),
        ("a:[1, 2] b:[n,0],c:[]", {"a": (1, 2), "b": ("n", 0), "c": ()}),
        ("input:0:[7]", {"input:0": (7,)}),
        ("my x : [7], y z:[n]", {"my x": (7,), "y z": ("n",)}),
    ],
)
def test_shapes(text: str, wanted: dict[str, Any]) -> None:
    assert arguments.shapes(text) == wanted


@pytest.mark.parametrize("size", ["-1", "?", "None"])
def test_a_size_that_is_not_known_has_a_name(size: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        arguments.shapes(f"x:[{size}, 3]")
    assert str(caught.value) == (
        f"{size} is no size; where it is known only when the model runs, name it: x:[n,3]"
    )


@given(st.text(st.sampled_from("ab:[], 1-n\n٣"), max_size=20))
def test_any_shapes_are_read_or_wrong_usage(text: str) -> None:
    with contextlib.suppress(argparse.ArgumentTypeError):
        for shape in arguments.shapes(text).values():
            assert all(isinstance(size, (int, str)) for size in shape)


NUMBERS = st.dictionaries(
    st.text(st.characters(categories=["Ll"]), min_size=1, max_size=5),
    st.lists(st.none() | st.integers(0, 1 << 20), min_size=0, max_size=4),
    min_size=1,
    max_size=3,
)


@given(NUMBERS)
def test_written_shapes_are_read_again(wanted: dict[str, list[int | None]]) -> None:
    shapes = {
        name: tuple("n" if size is None else size for size in shape)
        for name, shape in wanted.items()
    }
    text = " ".join(f"{name}:[{','.join(map(str, shape))}]" for name, shape in shapes.items())
    assert arguments.shapes(text) == shapes


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    assert one_line(text).splitlines() in ([], [one_line(text)])
    assert one_line(text).isprintable()


def test_a_table() -> None:
    assert table(("a", "bc"), [("long", 1), ("x", 22)]) == "a     bc\nlong   1\nx     22"


def test_a_stage_is_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, said in ((Terminal(), "\r\x1b[Kwait ...\r\x1b[K"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(ModelError), stage("wait"):
            raise ModelError("x")
        assert stream.getvalue() == said


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tvmlab", "completion", "zsh", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["shell"] == "zsh"
