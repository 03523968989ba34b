"""`make lab` for real: JupyterLab in a process of its own, and the address that it prints."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120  # seconds, for a machine under load; it takes about three


def command() -> list[str]:
    """The last line of the Makefile's recipe, as the Makefile has it, for this interpreter.

    The set-up before it is for the repository's own environment, and has its own tests.
    """
    recipe = subprocess.run(
        ["make", "--dry-run", "lab", "ARGS=--no-browser"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = shlex.split(recipe.replace("\\\n", " ").strip().splitlines()[-1])
    assert words[:3] == [".venv/bin/python", "-m", "jupyterlab"], recipe
    return [sys.executable, *words[1:]]


@contextmanager
def running(serves: Path, own: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run JupyterLab in the folder `serves`; its settings and its log go to the folder `own`.

    Gives the process and the address. When the block ends, so does all that it started.
    """
    # Neither the user's settings nor another server of theirs count.
    mine = {"HOME": own, "JUPYTER_CONFIG_DIR": own / "config"}
    mine |= {"JUPYTER_DATA_DIR": own / "data", "JUPYTER_RUNTIME_DIR": own / "runtime"}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("JUPYTER")}
    log = own / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(),
            cwd=serves,
            env=kept | {name: str(path) for name, path in mine.items()},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what it starts can be stopped with it
        )
    try:
        yield process, address(process, log)
    finally:
        process.terminate()  # it ends its kernels, which are in no group of its own
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the address, with its token, in the log."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := re.search(r"http://127\.0\.0\.1:\S+", log.read_text()):
            return found[0]
        assert process.poll() is None, f"it ended:\n{log.read_text()}"
        time.sleep(0.1)
    raise AssertionError(f"no address after {PATIENCE} s:\n{log.read_text()}")
