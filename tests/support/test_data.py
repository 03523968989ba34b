"""The cache folder, the registry, and the errors when a file cannot be downloaded."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tvmlab.errors import ChecksumError, DataError
from tvmlab.support import data
from tvmlab.support.data import Entry

CONTENT = bytes(range(256)) * 4096
OTHER = CONTENT[::-1]
Known = Callable[[str], Entry]


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server with one file, which counts its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.requests = CONTENT, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as it:
        thread = threading.Thread(target=it.serve_forever, args=(0.01,))
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TVMLAB_CACHE", str(folder))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("TVMLAB_OFFLINE", raising=False)
    return folder


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Put a file with the name file.bin and an address into the registry."""

    def put(url: str) -> Entry:
        digest = hashlib.sha256(CONTENT).hexdigest()
        entry = Entry("file.bin", url, len(CONTENT), digest, "CC0-1.0")
        monkeypatch.setitem(data.REGISTRY, entry.name, entry)
        return entry

    return put


def test_a_file_is_downloaded_once(
    server: Server, known: Known, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known(server.url)
    assert data.cached("file.bin") is None
    path = data.fetch("file.bin")
    assert path == cache / "file.bin"
    assert path.read_bytes() == CONTENT
    assert data.fetch("file.bin") == data.cached("file.bin") == path
    assert server.requests == 1
    assert list(cache.iterdir()) == [path]
    assert capfd.readouterr() == ("", "")


def test_wrong_content_is_refused_and_deleted(server: Server, known: Known, cache: Path) -> None:
    known(server.url)
    server.content = OTHER
    with pytest.raises(ChecksumError, match="SHA256 hash of downloaded file"):
        data.fetch("file.bin")
    assert list(cache.iterdir()) == []


def test_without_a_network_the_error_says_what_to_put_where(known: Known, cache: Path) -> None:
    wanted = known("http://127.0.0.1:1/file")
    with pytest.raises(DataError, match=r"could not be downloaded: .*refused") as caught:
        data.fetch("file.bin")
    for part in (wanted.url, wanted.sha256, str(wanted.size), str(cache / "file.bin")):
        assert part in str(caught.value)


def test_the_variable_closes_the_network(
    server: Server, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(server.url)
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    with pytest.raises(DataError, match="TVMLAB_OFFLINE"):
        data.fetch("file.bin")
    assert server.requests == 0
    monkeypatch.setenv("TVMLAB_OFFLINE", "0")
    assert data.fetch("file.bin").read_bytes() == CONTENT


def test_a_cache_that_cannot_be_written(
    server: Server, known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(server.url)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="Not a directory") as caught:
        data.fetch("file.bin")
    assert "TVMLAB_CACHE" in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx, resnet8_float\.tflite"):
        data.fetch("resnet51.onnx")


def test_the_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    assert data.cache_dir() == cache
    monkeypatch.delenv("TVMLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert data.cache_dir() == Path("/x/tvmlab")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert data.cache_dir() == Path("/h/.cache/tvmlab")
