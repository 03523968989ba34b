"""`make lab` for real: JupyterLab starts, says its address, and opens to its token alone."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.scripts.lab import PATIENCE, running

ROOT = Path(__file__).resolve().parents[2]
FIRST = "notebooks/00_start_here.ipynb"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The running process and the address that it prints."""
    with running(ROOT, tmp_path_factory.mktemp("lab")) as started:
        yield started


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_address_opens_the_first_notebook(lab: tuple[subprocess.Popen[bytes], str]) -> None:
    _, url = lab
    assert urlsplit(url).path == f"/lab/tree/{FIRST}"
    status, page = get(url)
    assert status == 200
    assert "<title>JupyterLab</title>" in page


def test_the_token_opens_the_files_and_nothing_else_does(
    lab: tuple[subprocess.Popen[bytes], str],
) -> None:
    _, url = lab
    (token,) = parse_qs(urlsplit(url).query)["token"]
    files = f"http://{urlsplit(url).netloc}/api/contents/{FIRST}"
    status, text = get(f"{files}?token={token}")
    assert status == 200
    assert json.loads(text)["type"] == "notebook"
    assert get(files)[0] == 403
    assert get(f"{files}?token={token[::-1]}x")[0] == 403
