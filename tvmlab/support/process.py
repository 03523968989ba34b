"""Finding build tools, and running them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolchainError

_INSTALL = {
    "g++": "Install a C++ compiler (Debian, Ubuntu: apt install g++).",
    "clang++": "Install it (Debian, Ubuntu: apt install clang).",
    "aarch64-linux-gnu-g++": "Install it (Debian, Ubuntu: apt install g++-aarch64-linux-gnu).",
    "make": "Install it (Debian, Ubuntu: apt install make).",
    "cmake": "Install a newer one: pip install 'cmake>=3.26'.",
    "ninja": "Install it: pip install ninja.",
    "tvm-ffi-config": "Install tvm-ffi: pip install apache-tvm-ffi==0.1.14.post1.",
}


@dataclass(frozen=True)
class Tool:
    """A program that was found.

    Attributes
    ----------
    name : str
        Its name, as it is typed.
    path : Path
        Where it is.
    version : tuple of int
        The first dotted number that it prints about itself; empty where it prints none.
    """

    name: str
    path: Path
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}".strip()


@dataclass(frozen=True)
class Completed:
    """A command that ended well.

    Attributes
    ----------
    command : str
        The command, as a shell takes it.
    output : str
        Everything that it wrote, standard output and errors in their order.
    seconds : float
        How long it took.
    """

    command: str
    output: str
    seconds: float


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that build commands run in.

    Parameters
    ----------
    extra : mapping of str to str, optional
        Variables to set besides.

    Returns
    -------
    dict of str to str
        This process's variables, with the folder of the running Python in front of PATH as if its
        virtual environment were activated, English messages, no colour codes, and nothing of a
        make that runs above us (`make lab`, `make test`): each make below it would obey its flags.
    """
    # Not resolved: the interpreter of a virtual environment is a link out of it.
    own_folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([own_folder, os.environ.get("PATH", os.defpath)])
    own = {"PATH": path, "LC_ALL": "C", "TERM": "dumb"}
    if sys.prefix != sys.base_prefix:
        own["VIRTUAL_ENV"] = sys.prefix  # CMake's FindPython goes by it
    # Jupyter sets these three for its kernels, and CMake, Ninja and compilers obey them.
    colour = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR")
    above = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    kept = {name: text for name, text in os.environ.items() if name not in {*colour, *above}}
    return {**kept, **own, **(extra or {})}


def find_tool(name: str, *, minimum: tuple[int, ...] = ()) -> Tool:
    """Find a program, at least of a version.

    Parameters
    ----------
    name : str
        What one would type: `g++`, `make`, `cmake`, `ninja`.
    minimum : tuple of int, optional
        The oldest version that will do.

    Returns
    -------
    Tool
        The first on the way (the folder of the running Python, then PATH) that is new enough.

    Raises
    ------
    ToolchainError
        If there is none, or only older ones; it says how to install one.
    """
    seen: list[str] = []
    fix = _INSTALL.get(name, f"Install {name}, or put its folder on PATH.")
    for folder in environment()["PATH"].split(os.pathsep):
        path = shutil.which(name, path=folder) if folder else None
        if path is None:
            continue
        tool = Tool(name, Path(path), _version(path))
        if tool.version >= minimum:
            return tool
        seen.append(f"{path} is {'.'.join(map(str, tool.version)) or 'of no known version'}")
    if seen:
        need = ".".join(map(str, minimum))
        raise ToolchainError(
            f"{name} is too old: {need} is needed.", where="; ".join(seen), fix=fix
        )
    raise ToolchainError(f"{name} is not installed.", where="PATH", fix=fix)


def _version(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def compiler() -> Tool:
    """The C++ compiler: `CXX` where it is set, else g++, else clang++.

    Returns
    -------
    Tool
        The compiler.

    Raises
    ------
    ToolchainError
        If there is none.
    """
    if own := os.environ.get("CXX"):
        return find_tool(own)
    for name in ("g++", "clang++"):
        try:
            return find_tool(name)
        except ToolchainError:
            continue
    raise ToolchainError("No C++ compiler is installed.", where="PATH", fix=_INSTALL["g++"])


def run(
    command: str | Sequence[str | Path],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> Completed:
    """Run a build command and keep what it says.

    Parameters
    ----------
    command : str or sequence of str
        A line for the shell (`/bin/sh`), or a program and its arguments.
    cwd : path, optional
        The folder to run in.
    env : mapping of str to str, optional
        Variables to set besides `environment()`.
    timeout : float
        Seconds until it is stopped, with everything that it started.

    Returns
    -------
    Completed
        The command, its output and its time.

    Raises
    ------
    ToolchainError
        If it cannot start, exits with something else than 0, or takes too long. The error has the
        command, the exit code, the last lines, and the first one that says `error`.
    """
    line = command if isinstance(command, str) else shlex.join(map(str, command))
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(c) for c in command]
    start = time.perf_counter()
    # A temporary file and not a pipe: the output of a grandchild that outlives the timeout would
    # keep a pipe open, and us waiting.
    with tempfile.TemporaryFile() as sink:
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolchainError(f"A command cannot start: {error}", where=line) from error
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:  # too late, or interrupted by the user
                os.killpg(process.pid, 9)
                process.wait()
        sink.seek(0)
        output = sink.read().decode(errors="replace")
    if code != 0:
        how = f"with exit code {code}" if code is not None else f"after {timeout:g} s without end"
        tail = "\n".join(f"    {text}" for text in _telling(output.splitlines()))
        raise ToolchainError(
            f"A build command failed {how}:\n{tail}" if tail else f"A build command failed {how}.",
            where=line,
            fix="Read the last lines of its output, above; run the command in a shell to see all.",
        )
    return Completed(line, output, time.perf_counter() - start)


def _telling(lines: list[str], last: int = 12) -> list[str]:
    """The last lines, and before them the first error: compilers name it, then write on."""
    tail = lines[-last:]
    if any("error" in line.lower() for line in tail):
        return tail
    return [line for line in lines[:-last] if "error" in line.lower()][:1] + tail
