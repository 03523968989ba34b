"""Chromium, and the site on a server: for the tests of what one sees."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.short import absent

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window.

    For a file and not for the run: while Playwright is there, asyncio takes its loop for running,
    and tests of other files could not start theirs.
    """
    try:
        from playwright import sync_api
    except ImportError:
        absent("playwright is not installed: make setup")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        absent("chromium: not on this machine (Debian: apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        # Playwright's own options go without the sandbox, which root does not get, and without
        # /dev/shm, which is small in containers. No page here is anybody else's.
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where the pictures of what was seen are kept, to be looked at after the run."""
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files, and does not log them."""

    def do_GET(self) -> None:
        """Send the file; no icon, which Chromium asks for where it opens a picture alone."""
        if self.path == "/favicon.ico":
            self.send_response(http.HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the site, served from this process."""
    handler = partial(Silent, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
