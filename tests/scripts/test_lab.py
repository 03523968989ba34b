"""`make lab` for real: JupyterLab starts, says its address, and opens to its token alone."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = "notebooks/00_start_here.ipynb"
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


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address that a running JupyterLab prints; its settings and its log are in a folder."""
    own = tmp_path_factory.mktemp("lab")
    # Neither the user's settings nor another server of theirs count.
    mine = {"HOME": own, "JUPYTER_CONFIG_DIR": own / "config"}
    mine |= {"JUPYTER_DATA_DIR": own / "data", "JUPYTER_RUNTIME_DIR": own / "runtime"}
    kept = {name: text for name, text in os.environ.items() if not name.startswith("JUPYTER")}
    log = own / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(),
            cwd=ROOT,
            env=kept | {name: str(path) for name, path in mine.items()},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what it starts can be stopped with it
        )
    try:
        yield address(process, log)
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


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_address_opens_the_first_notebook(url: str) -> None:
    assert urlsplit(url).path == f"/lab/tree/{FIRST}"
    status, page = get(url)
    assert status == 200
    assert "<title>JupyterLab</title>" in page


def test_the_token_opens_the_files_and_nothing_else_does(url: str) -> None:
    (token,) = parse_qs(urlsplit(url).query)["token"]
    files = f"http://{urlsplit(url).netloc}/api/contents/{FIRST}"
    status, text = get(f"{files}?token={token}")
    assert status == 200
    assert json.loads(text)["type"] == "notebook"
    assert get(files)[0] == 403
    assert get(f"{files}?token={token[::-1]}x")[0] == 403
