"""The tools of notebook 09, which Debian's packages bring and `make lab-tools` installs.

Which tool is in which package stands in `assets/lab-tools.txt` and nowhere else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ._process import environment, find_tool
from .errors import InputError, ToolchainError

__all__ = ["PACKAGES", "here", "missing"]

_LIST = Path(__file__).parent / "assets" / "lab-tools.txt"

# What a tool can do only where the kernel lets it: containers and hardened systems often do not.
_TRIALS = {
    "perf": ("record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "true"),
    "strace": ("-o", "/dev/null", "true"),
    "ltrace": ("-o", "/dev/null", "true"),
}


def _packages() -> Iterator[tuple[str, str]]:
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            program, package = line.split()
            yield program, package


#: The Debian package of each tool.
PACKAGES = dict(_packages())


@cache
def missing(tool: str) -> str | None:
    """Say what is to be done before a tool can be used.

    Parameters
    ----------
    tool : str
        The program, one of `PACKAGES`.

    Returns
    -------
    str or None
        A line; None where the tool is here and works. It is looked for once in a process.

    Raises
    ------
    InputError
        Nobody knows the tool.
    """
    if tool not in PACKAGES:
        raise InputError(
            f"there is no tool {tool!r}",
            where="tvmlab.lab_tools",
            fix=f"choose one of {', '.join(PACKAGES)}",
        )
    try:
        path = find_tool(tool).path
    except ToolchainError:
        return f"{tool} is not on this machine: `make lab-tools` (Debian's {PACKAGES[tool]})"
    if tool in _TRIALS:
        try:
            subprocess.run(
                [path, *_TRIALS[tool]],
                check=True,
                timeout=30,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        except (OSError, subprocess.SubprocessError):
            return f"{tool} is on this machine, but the kernel does not let it look at processes"
    return None


def here(*tools: str) -> bool:
    """Tell whether tools can be used, and print what to do where one cannot.

    Parameters
    ----------
    *tools : str
        Programs, of `PACKAGES`.

    Returns
    -------
    bool
        Whether all of them can.

    Raises
    ------
    InputError
        Nobody knows a tool.
    """
    reasons = [reason for tool in tools if (reason := missing(tool)) is not None]
    for reason in reasons:
        print(f"skipped: {reason}")
    return not reasons
