"""An HTTP server on this machine that misbehaves in every way it can."""

from __future__ import annotations

import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tvmlab.data import Entry

CONTENT = bytes(range(256)) * 4096  # 1 MiB
OTHER = bytes(reversed(range(256))) * 4096


class Server(http.server.ThreadingHTTPServer):
    """Serves one file, and remembers the requests. Its attributes say how it misbehaves."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges: list[str | None] = []
        self.break_after: list[int] = []  # one entry for each request that breaks off
        self.heeds_ranges = True
        self.status: list[int] = []  # one entry for each request that is refused
        self.location = ""
        self.range_shift = 0
        self.declares_length = True
        self.stalls = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is part of the plan."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.ranges.append(asked)
        if server.status:
            self.send_response(server.status.pop(0))
            if server.location:
                self.send_header("Location", server.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        content = server.content
        if asked and server.heeds_ranges:
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            first = start + server.range_shift
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            content = content[start:]
        else:
            self.send_response(200)
        if server.declares_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if server.stalls:
            time.sleep(server.stalls)
        if server.break_after:
            content = content[: server.break_after.pop(0)]
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(name="server")
def server_fixture() -> Iterator[Server]:
    with Server() as it:
        thread = threading.Thread(target=it.serve_forever, args=(0.01,))
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@pytest.fixture(autouse=True, name="cache")
def cache_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TVMLAB_CACHE", str(folder))
    monkeypatch.delenv("TVMLAB_OFFLINE", raising=False)
    return folder


def entry(url: str, content: bytes = CONTENT, mirrors: tuple[str, ...] = ()) -> Entry:
    return Entry(
        name="file.bin",
        url=url,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="CC0-1.0",
        mirrors=mirrors,
    )


def closed_port() -> str:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{it.getsockname()[1]}/file"


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}
