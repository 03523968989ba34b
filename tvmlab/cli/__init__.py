"""The program `tvmlab`: its commands, a module each, over the package's public functions.

Exit codes: 0 where it is done, 1 where something is wrong (a line on standard error says what,
``--verbose`` says the rest), 2 where the command line is, 130 where the user interrupted it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from .._with_tvm import leave_pytorch_out
from ..errors import InputError, TvmlabError
from . import bench, compile, completion, partition, profile, rpc, run, show, tune
from .advice import for_the_shell
from .answer import Answer, one_line
from .parsing import Parser

__all__ = ["main", "parser"]

COMMANDS = (compile, run, tune, bench, profile, show, partition, rpc, completion)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    made = argparse.ArgumentParser(
        "tvmlab",
        description="Compile, run and measure machine-learning models with Apache TVM.",
        epilog="Each command's --help ends in an example.",
        formatter_class=_wide,
        allow_abbrev=False,
    )
    made.add_argument("--version", action=_Version, nargs=0, help="print versions, and exit")
    commands = made.add_subparsers(
        required=True, metavar="COMMAND", title="commands", parser_class=Parser
    )
    for module in COMMANDS:
        module.add(commands)
    return made


def _wide(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=20)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the program's name; the process's own if not given.

    Returns
    -------
    int
        The exit code, see above.

    Raises
    ------
    SystemExit
        With 2 where the command line is wrong, with 0 after ``--help``.
    """
    if sys.stderr is None:  # it was closed: 2>&-
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (to the end)
    told = parser().parse_args(arguments)
    leave_pytorch_out()
    try:
        with _interruptions(), _notes(), _only_the_answer(told.json):
            answer: Answer | None = told.run(told)
        if answer is not None:
            _print(answer.json() if told.json else answer.text)
    except KeyboardInterrupt as stopped:
        print(": ".join(["tvmlab: interrupted", *map(str, stopped.args)]), file=sys.stderr)
        return 130
    except BrokenPipeError:  # who read the answer, such as `head`, has enough
        return 1
    except Exception as error:
        print(f"tvmlab: {_said(error)}", file=sys.stderr)
        if told.verbose:
            import traceback

            traceback.print_exception(error)
        return 1
    return 0


def _said(error: Exception) -> str:
    """Say an error in one line: one of ours has all in words, another one is a fault of ours."""
    if isinstance(error, FileNotFoundError):
        error = _no_temporary_folder() or error
    if isinstance(error, TvmlabError):
        where = f" ({error.where})" if error.where else ""
        fix = f"; to do: {for_the_shell(error.fix)}" if error.fix else ""
        # A sentence's full stop stands at its end, and it goes on.
        what = re.sub(r"(?<!\.)\.$", "", error.what) if where or fix else error.what
        return one_line(f"{what}{where}{fix}")
    from .._telling import telling

    return one_line(
        f"a fault of its own: {type(error).__name__}: {telling(error)}; to do: --verbose says where"
    )


def _no_temporary_folder() -> InputError | None:
    """Ask for the folder that temporary files go to; say in words that none takes them."""
    import tempfile

    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        return InputError(
            f"temporary files cannot be written: {error.strerror}",
            fix="let TMPDIR name a folder that you may write to and that has space",
        )
    return None


def _print(text: str) -> None:
    """Print the answer; signs that the encoding of standard output lacks become escapes."""
    import io

    if sys.stdout is None:  # >&-
        raise _unprinted("it is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except OSError as error:
        # Python tries once more to write when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise _unprinted(error.strerror) from error


def _unprinted(why: str | None) -> InputError:
    return InputError(
        f"the answer cannot be printed: {why}",
        where="standard output",
        fix="let it go to a file or a program that takes it",
    )


@contextlib.contextmanager
def _interruptions() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, whatever a library makes of it meanwhile.

    One that is interrupted while it is imported may fail with an error of its own.
    """
    import signal

    interrupted = False

    def interrupt(*signalled: Any) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(*signalled)

    # In a background job the signal is ignored, and only the main thread may say what it does.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ours = ours and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _notes() -> Iterator[None]:
    """Print warnings as lines, without the place in our code that they come from."""

    def note(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"tvmlab: note: {one_line(str(message))}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = note  # type: ignore[assignment]
        yield


@contextlib.contextmanager
def _only_the_answer(json: bool) -> Iterator[None]:
    """Keep everything but the answer away from standard output where a program reads it."""
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        yield


class _Version(argparse.Action):
    """Prints versions: found in what is installed, for importing TVM would take seconds."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        names = ("tvmlab", "apache-tvm", "apache-tvm-ffi", "numpy")
        try:
            _print(", ".join(f"{name} {version(name)}" for name in names))
        except InputError as error:
            parser.exit(1, f"tvmlab: {_said(error)}\n")
        parser.exit()
