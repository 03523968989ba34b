"""Downloads against a real HTTP server on this machine, which misbehaves in every way it can."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvmlab import _download, data
from tvmlab.data import Entry
from tvmlab.errors import DataError

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
    monkeypatch.delenv("TVMLAB_OFFLINE", raising=False)
    return folder


def entry(url: str, content: bytes = CONTENT, mirrors: tuple[str, ...] = ()) -> Entry:
    return Entry(
        name="file.bin",
        url=url,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="CC0-1.0",
        what="a test file",
        mirrors=mirrors,
    )


def closed_port() -> str:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{it.getsockname()[1]}/file"


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def test_a_file_is_downloaded_once(server: Server, cache: Path) -> None:
    path = data.fetch(entry(server.url))
    assert path == cache / "file.bin"
    assert path.read_bytes() == CONTENT
    assert data.fetch(entry(server.url)) == data.cached(entry(server.url)) == path
    assert server.ranges == [None]
    assert left_in(cache) == {"file.bin"}


def test_what_is_not_there_is_not_cached(server: Server, cache: Path) -> None:
    assert data.cached(entry(server.url)) is None
    assert not cache.exists()


def test_a_broken_transfer_goes_on_where_it_broke(server: Server) -> None:
    server.break_after = [300_000, 200_000]
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", "bytes=500000-"]


def test_a_transfer_that_keeps_breaking_is_kept_for_the_next_call(
    server: Server, cache: Path
) -> None:
    server.break_after = [100_000] * 4
    with pytest.raises(DataError, match="the first 400000 bytes are kept"):
        data.fetch(entry(server.url))
    assert left_in(cache) == {"file.bin.part"}
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert server.ranges[-1] == "bytes=400000-"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(have=st.integers(0, len(CONTENT) + 2), rotten=st.booleans(), heeds=st.booleans())
def test_any_beginning_ends_well(
    server: Server, cache: Path, have: int, rotten: bool, heeds: bool
) -> None:
    cache.mkdir(exist_ok=True)
    (cache / "file.bin").unlink(missing_ok=True)
    (cache / "file.bin.part").write_bytes((OTHER if rotten else CONTENT + b"more")[:have])
    server.heeds_ranges = heeds
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert left_in(cache) == {"file.bin"}


def test_a_server_without_ranges_starts_again(server: Server) -> None:
    server.heeds_ranges = False
    server.break_after = [300_000]
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-"]


def test_a_part_longer_than_the_servers_file_starts_again(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(CONTENT[:1000])
    server.content = CONTENT[:500]
    with pytest.raises(DataError, match="offers 500 bytes instead of 1048576"):
        data.fetch(entry(server.url))
    assert server.ranges == ["bytes=1000-", None]


def test_another_range_than_asked_for_is_refused(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(CONTENT[:1000])
    server.range_shift = 7
    with pytest.raises(DataError, match="another range"):
        data.fetch(entry(server.url))


def test_wrong_content_is_deleted_and_said(server: Server, cache: Path) -> None:
    server.content = OTHER
    with pytest.raises(DataError, match="wrong content") as caught:
        data.fetch(entry(server.url))
    assert hashlib.sha256(OTHER).hexdigest() in str(caught.value)
    assert "deleted" in str(caught.value)
    assert left_in(cache) == set()
    assert len(server.ranges) == 1  # the whole file came from one answer: no use in asking again


def test_a_stale_part_gets_a_second_chance(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(OTHER[:1000])
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-", None]


@pytest.mark.parametrize("wrong", [OTHER, CONTENT[:-1], b""])
def test_a_damaged_file_in_the_cache_is_replaced(server: Server, cache: Path, wrong: bytes) -> None:
    cache.mkdir()
    (cache / "file.bin").write_bytes(wrong)
    assert data.cached(entry(server.url)) is None
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT


def test_a_damaged_file_is_said_when_it_cannot_be_replaced(cache: Path) -> None:
    cache.mkdir()
    (cache / "file.bin").write_bytes(OTHER)
    with pytest.raises(DataError, match=r"the cache was wrong .* and is deleted"):
        data.fetch(entry(closed_port()))
    assert left_in(cache) == set()


def test_more_bytes_than_expected_are_not_written(server: Server, cache: Path) -> None:
    server.content = CONTENT * 3
    server.declares_length = False
    with pytest.raises(DataError, match="more than the 1048576 bytes"):
        data.fetch(entry(server.url))
    assert (cache / "file.bin.part").stat().st_size <= len(CONTENT)


def test_a_refusal_is_named_and_not_repeated(server: Server) -> None:
    server.status = [404]
    with pytest.raises(DataError, match="HTTP 404"):
        data.fetch(entry(server.url))
    assert len(server.ranges) == 1


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.status = [503, 503]
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT


def test_a_mirror_takes_over(server: Server) -> None:
    path = data.fetch(entry(closed_port(), mirrors=(server.url,)))
    assert path.read_bytes() == CONTENT


def test_a_redirect_to_plain_http_is_refused(server: Server) -> None:
    server.status, server.location = [302], "http://example.org/file"
    with pytest.raises(DataError, match="redirects to an address that is not https"):
        data.fetch(entry(server.url))


def test_a_redirect_on_the_same_host_is_followed(server: Server) -> None:
    server.status, server.location = [302], server.url + "2"
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT


def test_a_silent_server_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "_READ_SECONDS", 0.2)
    server.stalls = 1.0
    with pytest.raises(DataError, match="silent"):
        data.fetch(entry(server.url))


def test_a_name_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()

    def hang(*_: object, **__: object) -> None:
        forever.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(_download, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(socket, "create_connection", hang)
    with pytest.raises(_download.Unreachable, match="did not answer"):
        _download.download("https://example.org/x", Path("nowhere"), 1, label="x")
    forever.set()


def test_offline_says_what_to_put_where(cache: Path) -> None:
    wanted = entry(closed_port())
    with pytest.raises(DataError) as caught:
        data.fetch(wanted)
    said = str(caught.value)
    assert "cannot be reached" in said
    for part in (wanted.url, wanted.sha256, str(wanted.size), str(cache / "file.bin")):
        assert part in said


def test_the_variable_closes_the_network(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    with pytest.raises(DataError, match="TVMLAB_OFFLINE"):
        data.fetch(entry(server.url))
    assert server.ranges == []
    monkeypatch.setenv("TVMLAB_OFFLINE", "0")
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT


def test_proxies_do_not_stand_before_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", closed_port())
    monkeypatch.delenv("no_proxy", raising=False)
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT


def test_a_proxy_is_what_has_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", closed_port())
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(_download.Unreachable, match=r"127\.0\.0\.1"):
        _download.download("https://example.org/x", Path("nowhere"), 1, label="x")


@pytest.mark.parametrize("place", ["/proc/tvmlab", "regular file"])
def test_a_cache_that_cannot_be_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "regular file":
        (tmp_path / "file").write_text("in the way")
        place = str(tmp_path / "file" / "cache")
    monkeypatch.setenv("TVMLAB_CACHE", place)
    with pytest.raises(DataError, match="cannot be written") as caught:
        data.fetch(entry(server.url))
    assert "TVMLAB_CACHE" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_folder_in_the_files_place_is_an_error(server: Server, cache: Path) -> None:
    (cache / "file.bin").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot be"):
        data.fetch(entry(server.url))


def test_a_whole_file_in_a_read_only_cache_serves(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data.fetch(entry(server.url))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert data.fetch(entry(server.url)) == path


def test_processes_at_once_wait_for_one_another(server: Server, cache: Path) -> None:
    wanted = entry(server.url)
    code = (
        "from tvmlab.data import Entry, fetch; import hashlib;"
        f"path = fetch({wanted!r});"
        "print(hashlib.sha256(path.read_bytes()).hexdigest())"
    )
    server.stalls = 0.3  # long enough for the others to arrive at the lock
    # `fetch` alone, without TVM: four imports of TVM at once would take longer than the test.
    light = (
        "import sys, types; package = types.ModuleType('tvmlab');"
        f"package.__path__ = [{str(Path(data.__file__).parent)!r}];"
        "sys.modules['tvmlab'] = package;"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", light + code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [worker.communicate(timeout=60)[0].strip() for worker in workers] == [wanted.sha256] * 4
    assert server.ranges == [None]
    assert left_in(cache) == {"file.bin"}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx, resnet8_float\.tflite"):
        data.fetch("resnet51.onnx")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../evil"},
        {"name": "a/b"},
        {"name": ""},
        {"url": "http://example.org/x"},
        {"url": "file:///etc/passwd"},
        {"mirrors": ("ftp://example.org/x",)},
        {"sha256": "abc"},
        {"size": 0},
    ],
)
def test_an_entry_that_cannot_be_right_is_refused(change: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "name": "x",
        "url": "https://example.org/x",
        "size": 1,
        "sha256": "0" * 64,
        "licence": "CC0-1.0",
        "what": "",
    }
    Entry(**fields)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        Entry(**{**fields, **change})  # type: ignore[arg-type]


def test_the_registry_is_complete_and_pinned() -> None:
    assert set(data.REGISTRY) == {
        "resnet50-v2-7.onnx",
        "resnet8_float.tflite",
        "resnet8_int8.tflite",
    }
    for name, item in data.REGISTRY.items():
        assert item.name == name
        assert item.url.startswith("https://")
        # A moving branch would break the checksum one day; a commit does not.
        assert any(len(part) == 40 and int(part, 16) for part in item.url.split("/"))
        assert item.licence == "Apache-2.0"
        assert item.what
    zoo = data.REGISTRY["resnet50-v2-7.onnx"]
    assert (zoo.size, zoo.sha256[:8]) == (102_442_450, "1e80e8a7")


def test_the_cache_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert data.cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("TVMLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert data.cache_dir() == Path("/x/tvmlab")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert data.cache_dir() == Path("/h/.cache/tvmlab")


def test_progress_is_shown_to_those_who_watch(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data.fetch(entry(server.url))
    assert capsys.readouterr() == ("", "")  # a short transfer in the dark: nothing to say
    os.unlink(data.cache_dir() / "file.bin")
    # A stand-in for the stream that a notebook's kernel puts in the place of standard error.
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", stream)
    data.fetch(entry(server.url))
    assert "file.bin" in stream.getvalue()
    assert "1.05M" in stream.getvalue()


def test_rare_lines_take_the_place_of_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(_download.time, "monotonic", lambda: next(clock))
    with _download._progress("big.bin", 0, 200_000_000) as advance:
        advance(50_000_000)
        advance(50_000_000)
        advance(50_000_000)
    assert capsys.readouterr().err == "big.bin: 50% of 200.0 MB\n"
