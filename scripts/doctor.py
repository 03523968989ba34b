"""Look at this machine and at .venv, and say what is wrong and what to do about it.

    python3 scripts/doctor.py    # or `make doctor`: nothing has to be installed, nothing is changed

A line a finding: `ok`, `note` (something optional is missing) or `bad` (it cannot work like this).
The exit status is 1 where a line is bad. What is about packages runs in the environment's Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REMAKE = "make clean setup"
PYTHONS = ("3.11", "3.12", "3.13")
# For a new environment as in setup.sh; one that is there needs room for what is built.
SPACE_MB, SPACE_LATER_MB = 4000, 500
# Seconds for TVM to start, compile and run, which take three on a machine with nothing else to do.
PATIENCE = 300

# Runs in .venv: what is installed beside what is pinned, and whether a network compiles and runs.
INSIDE = """
import importlib.metadata, json
from packaging.requirements import Requirement
wrong, count = {}, 0
for line in open("requirements.txt"):
    if not line[:1].isalnum():
        continue
    pin = Requirement(line.split(" #")[0].strip())
    if pin.marker and not pin.marker.evaluate():
        continue
    count += 1
    try:
        found = importlib.metadata.version(pin.name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None or not pin.specifier.contains(found, prereleases=True):
        wrong[pin.name] = [found, str(pin.specifier)]
said = {"wrong": wrong, "pinned": count}
print(json.dumps(said), flush=True)
import numpy as np, tvmlab
from tvmlab.models import digits, digits_resnet
run = tvmlab.compile(tvmlab.load(digits_resnet()))
right = bool(run(digits().x_test[:1]).argmax() == digits().y_test[0])
target = tvmlab.host_target()
said.update(right=right, mcpu=str(target.attrs["mcpu"]), threads=int(target.attrs["num-cores"]))
print(json.dumps(said), flush=True)
"""


class Finding(NamedTuple):
    """What a check found: `ok`, `note` or `bad`; what it is; and, unless ok, what to do."""

    state: str
    what: str
    todo: str = ""


Check = Callable[[], Iterator[Finding]]


def environment() -> Path:
    """Return the Python of .venv, whether it is there or not."""
    return ROOT / ".venv" / "bin" / "python"


def system() -> Iterator[Finding]:
    """Check the operating system and the folder that the checkout is in."""
    machine = os.uname().machine if hasattr(os, "uname") else sys.platform
    if sys.platform != "linux":
        yield Finding("bad", f"this is {sys.platform}", "use the Docker image: README, Docker")
    elif machine != "x86_64":
        yield Finding("note", f"Linux on {machine}", "only x86-64 is tested")
    else:
        yield Finding("ok", "Linux on x86-64")
    if re.search(r"\s", str(ROOT)):
        yield Finding("bad", f"a space in the path {str(ROOT)!r}", "move the checkout")


def python() -> Iterator[Finding]:
    """Check that there is a Python to make the environment with."""
    named = os.environ.get("PYTHON")
    if environment().exists() and not named:
        return  # Which Python made it is told by `packages`.
    tried = [named] if named else ["python3", *(f"python{version}" for version in PYTHONS)]
    for name in tried:
        line = [name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            continue
        if done.stdout.strip() in PYTHONS:
            yield Finding("ok", f"Python {done.stdout.strip()} ({name})")
            return
    yield Finding(
        "bad",
        f"no Python {PYTHONS[0]} to {PYTHONS[-1]} among {', '.join(tried)}",
        "install one (Debian 12: apt install python3 python3-venv), or name it with PYTHON=",
    )


def space() -> Iterator[Finding]:
    """Check the room on the disk."""
    free = shutil.disk_usage(ROOT).free // 1_000_000
    wanted = SPACE_LATER_MB if environment().exists() else SPACE_MB
    if free < wanted:
        yield Finding("bad", f"{free} MB of disk are free", f"free some: {wanted} MB are needed")
    else:
        yield Finding("ok", f"{free // 1000} GB of disk are free")


def packages() -> Iterator[Finding]:
    """Check the environment: complete, as pinned, and able to compile a network and run it."""
    if not environment().exists():
        yield Finding("note", "there is no .venv yet", "make setup, or any other target")
        return
    if (ROOT / ".venv" / "tvmlab-unfinished").exists():
        yield Finding("bad", "an installation was interrupted", "make setup")
        return
    try:
        done = subprocess.run(
            [str(environment()), "-c", INSIDE],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        yield Finding(
            "bad",
            f".venv has not answered for {PATIENCE} s",
            "ask again when the machine is less busy",
        )
        return
    except OSError as error:
        yield Finding("bad", f".venv does not run: {error}", REMAKE)
        return
    lines = done.stdout.splitlines()
    said = json.loads(lines[-1]) if lines else {"wrong": {}, "pinned": 0}
    for name, (found, pinned) in sorted(said["wrong"].items()):
        yield Finding("bad", f"{name} {found or 'is missing'}, pinned {pinned}", REMAKE)
    if done.returncode:
        errors = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", done.stderr, re.MULTILINE)
        last = errors[-1] if errors else f"exit status {done.returncode}"
        yield Finding("bad", f"TVM does not compile and run: {last}", REMAKE)
        return
    if not said["wrong"]:
        yield Finding("ok", f"{said['pinned']} packages, as pinned")
    state, todo = ("ok", "") if said["right"] else ("bad", "please report it, with this output")
    yield Finding(state, f"a network compiles for {said['mcpu']} and reads its digit", todo)
    yield from _threads(said["threads"])


def _threads(threads: int) -> Iterator[Finding]:
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("TVM_NUM_THREADS")
    if asked and asked != str(have):
        yield Finding("note", f"TVM_NUM_THREADS={asked}, of {have} processors", "unset it")
    else:
        yield Finding("ok", f"{threads} threads for {have} processors")


def needing(program: str) -> str:
    """Return the numbers of the notebooks whose metadata names a program: ``01, 05 to 08``."""
    numbers = []
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        try:
            about = json.loads(path.read_text(encoding="utf-8"))["metadata"]["tvmlab"]
        except (ValueError, LookupError):
            continue  # JupyterLab says what is wrong with it.
        if program in about.get("needs", ()):
            numbers.append(int(path.name[:2]))
    # In a row of neighbours the number grows as the place does.
    rows = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in row] for _, row in rows]
    return ", ".join(
        f"{span[0]:02}" if len(span) == 1 else f"{span[0]:02} to {span[-1]:02}" for span in spans
    )


def programs() -> Iterator[Finding]:
    """Check the programs that parts of the workbook need."""
    for name, purpose, package in (
        ("make", "every target", "make"),
        ("g++", f"the accelerator's simulator, tuning, notebooks {needing('g++')}", "g++"),
        ("git", "a clone that can be brought up to date", "git"),
    ):
        if shutil.which(name):
            yield Finding("ok", name)
        else:
            yield Finding("note", f"no {name}: {purpose}", f"apt install {package}")


def tools() -> Iterator[Finding]:
    """Check the tools of notebook 09."""
    text = (ROOT / "tvmlab" / "assets" / "lab-tools.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^([^#\s]\S*)\s+\S+$", text, re.MULTILINE)
    missing = [name for name in listed if not shutil.which(name)]
    if missing:
        yield Finding("note", f"no {', '.join(missing)}: cells of notebook 09", "make lab-tools")
    else:
        yield Finding("ok", "the tools of notebook 09")


CHECKS: tuple[Check, ...] = (
    system,
    python,
    space,
    packages,
    programs,
    tools,
)


def main() -> int:
    """Print what was found; return 1 where something is bad."""
    bad = 0
    for check in CHECKS:
        for found in check():
            bad += found.state == "bad"
            print(f"{found.state:<5} {found.what}")
            if found.todo:
                print(f"      -> {found.todo}")
    print("nothing is wrong" if not bad else f"{bad} to mend")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
