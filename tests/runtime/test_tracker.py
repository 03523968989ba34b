"""Addresses at which no tracker answers."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.runtime.servers import KEY
from tvmlab import host_target
from tvmlab.errors import TuningError
from tvmlab.runtime.tracker import Tracker
from tvmlab.tuning.measuring.remote import RemoteMeasurer


def test_no_tracker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(TuningError, match=r"does not answer: (.|\n)*tvmlab rpc-tracker"):
        RemoteMeasurer(host_target(), tracker=f"127.0.0.1:{port}", key=KEY)
    with pytest.raises(TuningError, match="host and its port"):
        RemoteMeasurer(host_target(), tracker="127.0.0.1", key=KEY)


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 400 Bad\r\n\r\n", b"\x71\xf2\x02\x00\x02\x00\x00\x00{}"]
)
def test_what_answers_is_no_tracker(says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(says)
                connection.recv(100)

        threading.Thread(target=answer).start()
        with pytest.raises(TuningError, match="does not answer"):
            Tracker(f"127.0.0.1:{server.getsockname()[1]}", KEY).servers()


def test_a_tracker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmlab.runtime.tracker._TALK_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        tracker = Tracker(f"127.0.0.1:{server.getsockname()[1]}", KEY)
        with pytest.raises(TuningError, match="does not answer"):
            tracker.servers()
        with pytest.raises(TuningError, match="does not answer"):
            tracker.request(0.3)
