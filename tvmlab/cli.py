"""The program `tvmlab`: its commands, each group of them in a module of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import rpc
from .errors import TvmlabError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the program's name; the process's own if not given.

    Returns
    -------
    int
        The exit status: 0 where all went well, 1 where an error was printed.
    """
    parser = argparse.ArgumentParser("tvmlab", description="Commands of the workbook about TVM.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    rpc.add_commands(commands)
    told = parser.parse_args(arguments)
    try:
        status: int = told.run(told)
    except TvmlabError as error:
        print(error, file=sys.stderr)
        return 1
    return status
