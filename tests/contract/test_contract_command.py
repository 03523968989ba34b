"""The command `tvmlab`: its commands and their options."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any


def screen(*words: str) -> str:
    command = [sys.executable, "-m", "tvmlab", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def options(text: str) -> list[str]:
    """List the option strings of a help screen."""
    lines = re.findall(r"^  (-.*?)(?:  .*)?$", text, re.MULTILINE)
    return sorted({one for line in lines for one in re.findall(r"(?<![\w-])--?[a-z][\w-]*", line)})


def test_each_command_has_its_options(kept: Callable[..., Any]) -> None:
    first = screen()
    commands = re.findall(r"^    ([a-z-]+)", first.partition("\ncommands:\n")[2], re.MULTILINE)
    found = {"": options(first)} | {name: options(screen(name)) for name in commands}
    assert len(found) > 5
    assert found == kept("command", "options", found)
