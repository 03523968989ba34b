"""The Debian tools of notebook 09, which `make lab-tools` installs.

`assets/lab-tools.txt` lists each tool with its package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ..errors import ToolchainError
from ..support.toolchain import find_tool, run

_LIST = (Path(__file__).parents[1] / "assets" / "lab-tools.txt").read_text(encoding="utf-8")

#: The Debian package of each tool.
PACKAGES: dict[str, str] = {
    line.split()[0]: line.split()[1]
    for line in _LIST.splitlines()
    if line and not line.startswith("#")
}

# Commands that fail if the kernel forbids to trace processes, as in many containers.
_TRIALS = {
    "perf": ("record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "true"),
    "strace": ("-o", "/dev/null", "true"),
    "ltrace": ("-o", "/dev/null", "true"),
}


@cache
def missing(tool: str) -> str | None:
    """Return a line for the reader on what a tool of `PACKAGES` lacks, or None if it works.

    A process looks for a tool once.
    """
    try:
        path = find_tool(tool).path
    except ToolchainError:
        return f"{tool} is not on this machine: `make lab-tools` (Debian's {PACKAGES[tool]})"
    if tool in _TRIALS:
        try:
            run([path, *_TRIALS[tool]], timeout=30)
        except ToolchainError:
            return f"{tool} is on this machine, but the kernel does not let it look at processes"
    return None


def here(*tools: str) -> bool:
    """Return whether tools, each one of `PACKAGES`, can be used; print what to do if not."""
    reasons = [reason for tool in tools if (reason := missing(tool)) is not None]
    for reason in reasons:
        print(f"skipped: {reason}")
    return not reasons
