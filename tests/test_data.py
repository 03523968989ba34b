"""The cache, the registry, and what is said where a file cannot be had."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_server import (
    CONTENT,
    OTHER,
    Server,
    cache_fixture,  # noqa: F401
    closed_port,
    entry,
    left_in,
    server_fixture,  # noqa: F401
)

from tvmlab import data
from tvmlab.data import Entry
from tvmlab.errors import ChecksumError, DataError


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


def test_wrong_content_is_deleted_and_said(server: Server, cache: Path) -> None:
    server.content = OTHER
    with pytest.raises(ChecksumError, match="could not be downloaded: wrong content") as caught:
        data.fetch(entry(server.url))
    assert hashlib.sha256(OTHER).hexdigest() in str(caught.value)
    assert "deleted" in str(caught.value)
    assert left_in(cache) == set()
    assert len(server.ranges) == 1  # the whole file came from one answer: no use in asking again


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
    assert [worker.communicate(timeout=300)[0].strip() for worker in workers] == [wanted.sha256] * 4
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
