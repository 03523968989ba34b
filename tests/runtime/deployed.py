"""The C++ program, run as a user does."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tvmlab.runtime import deploy
from tvmlab.runtime.package import append, describe


@cache
def _program() -> Path:
    """Build the program once: to find it built takes a look at every tool."""
    return deploy.program()


def run(*arguments: Any, program: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program; it never crashes, and never waits."""
    line = [str(program or _program()), *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1, 2), (done.returncode, done.stderr)
    return done


def refused(*arguments: Any) -> str:
    """Run what is refused in words: what, where, and what to do."""
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "\n  where: " in done.stderr
    assert "\n  to do: " in done.stderr
    return done.stderr


def outputs(folder: Path, package: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run a package without Python, on arrays."""
    paths = []
    for place, value in enumerate(inputs):
        paths.append(folder / f"input{place}.npy")
        np.save(paths[-1], value)
    there = folder / "outputs"
    there.mkdir(exist_ok=True)
    done = run(package, *paths, "--output", there, "--repeats", 0)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [np.load(there / f"{place}.npy") for place in range(len(list(there.glob("*.npy"))))]


def rewritten(saved: Path, path: Path, **change: Any) -> Path:
    """Write a copy of a package with another description, and a checksum that is right."""
    content = saved.read_bytes()
    library = content[: -20 - int.from_bytes(content[-20:-12], "little")]
    path.write_bytes(library)
    append(path, replace(describe(saved), **change))
    return path
