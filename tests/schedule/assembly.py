"""What LLVM made of a module."""

from __future__ import annotations

import re

import tvmlab


def assembly(run: tvmlab.Executable) -> str:
    """Find the module of LLVM's among those that the executable imports."""
    modules = [run.vm_executable.mod]
    for one in modules:
        modules += list(one.imports)
        if one.kind == "llvm":
            return str(one.inspect_source("asm"))
    raise LookupError("no module of LLVM's")


def inner_loops(text: str) -> list[list[str]]:
    """List the bodies of loops without a loop inside: from a label to the jump back to it."""
    lines = text.splitlines()
    label = re.compile(r"^\.L\w+:|^\.LBB\w+:")
    found, start, name = [], 0, ""
    for i, line in enumerate(lines):
        if label.match(line):
            start, name = i, line.split(":")[0]
        elif name and re.match(rf"\s+(j\w+|b\.\w+|b|cbn?z|tbn?z)\b.*{re.escape(name)}$", line):
            found.append(lines[start + 1 : i])
    return found
