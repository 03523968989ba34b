"""The program `tvmlab`, called in this process."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any, NamedTuple

import pytest

from tvmlab import cli


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        """The one line of an error, which says what to do."""
        assert self.code == 1
        (line,) = [line for line in self.err.splitlines() if not line.startswith("tvmlab: note: ")]
        assert line.startswith("tvmlab: ")
        return line


class Program:
    """Calls the program as a shell would: one line, split into words."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, *words: str) -> Done:
        self._capsys.readouterr()
        try:
            code = cli.main([*shlex.split(line), *words])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        return Done(code, *self._capsys.readouterr())


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (action,) = [
        action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return dict(action.choices)
