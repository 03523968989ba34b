"""The command `tvmlab`: subcommands for the package's public functions.

The exit codes are 0 for success, 1 for an error (one line on standard error, plus a traceback with
``--verbose``), 2 for an invalid command line, and 130 after an interrupt by the user.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import TvmlabError
from ..support.importing import leave_pytorch_out
from .commands import completion, parser

__all__ = ["main", "parser"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the program's name; by default, those of this process.

    Returns
    -------
    int
        The exit code, see above.

    Raises
    ------
    SystemExit
        With 2 if the command line is invalid, and with 0 after ``--help``.
    """
    args = parser().parse_args(arguments)
    try:
        if args.run is not completion:
            leave_pytorch_out()
        # With --json, standard output contains only the JSON.
        output = contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext()
        with warnings.catch_warnings(), output:
            warnings.showwarning = _note  # type: ignore[assignment]
            answer = args.run(args)
        if answer is not None:
            print(_strict_json(answer[1]) if args.json else answer[0], flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes its buffer there at exit
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if _interrupted(error):
            print("tvmlab: interrupted", file=sys.stderr)
            return 130
        print(f"tvmlab: {_one_line(error)}", file=sys.stderr)
        if args.verbose:
            import traceback

            traceback.print_exception(error)
        return 1
    return 0


def _interrupted(error: BaseException | None) -> bool:
    """Return whether the cause is Ctrl-C; an interrupted library can raise an error of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _one_line(error: BaseException) -> str:
    """Format an error as one line; an error of another class is reported as a bug of tvmlab."""
    if isinstance(error, TvmlabError):
        text = error.what.removesuffix(".")
        text += f" ({error.where})" if error.where else ""
        text += f"; to do: {error.fix}" if error.fix else ""
    elif isinstance(error, OSError):
        text = str(error)
    else:
        from ..support.wording import telling

        kind = type(error).__name__
        text = f"internal error: {kind}: {telling(error)}; to do: --verbose prints the traceback"
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _strict_json(data: dict[str, Any]) -> str:
    """Format JSON with null instead of infinity and NaN, which JSON does not support."""
    import json

    text = json.dumps(data, default=float)  # NumPy's numbers
    return json.dumps(json.loads(text, parse_constant=lambda name: None), indent=1)


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the source location."""
    print(f"tvmlab: note: {' '.join(str(message).split())}", file=sys.stderr)
