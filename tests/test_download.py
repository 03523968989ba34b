"""Transfers that break, lie, stall and lead astray, against a real HTTP server."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tvmlab import _download, data
from tvmlab.errors import DataError


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


def test_a_stale_part_gets_a_second_chance(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(OTHER[:1000])
    assert data.fetch(entry(server.url)).read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-", None]


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
