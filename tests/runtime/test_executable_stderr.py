"""Saving and loading keep TVM's lines about scopes away from standard error, and nothing else."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import tvmlab
from tests.oracles.models import array, dense
from tvmlab.runtime import library

X = array(2, 4)


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense()))


def test_standard_error_is_put_back_when_threads_overlap() -> None:
    before = os.fstat(2)
    first_is_in, first_may_go = threading.Event(), threading.Event()
    second_is_in, second_may_go = threading.Event(), threading.Event()

    def use(is_in: threading.Event, may_go: threading.Event) -> None:
        with library._without_scope_lines():
            is_in.set()
            may_go.wait(300)

    first = threading.Thread(target=use, args=(first_is_in, first_may_go))
    second = threading.Thread(target=use, args=(second_is_in, second_may_go))
    first.start()
    assert first_is_in.wait(300)
    second.start()
    overlapped = second_is_in.wait(0.3)  # time enough to do harm where nothing prevents it
    first_may_go.set()
    first.join()
    second_may_go.set()
    second.join()
    assert not overlapped
    assert os.path.samestat(os.fstat(2), before)


def test_threads_save_and_load_at_once(executable: tvmlab.Executable, tmp_path: Path) -> None:
    before, results = os.fstat(2), []

    def work(name: str) -> None:
        results.append(tvmlab.load_executable(executable.save(tmp_path / name))(X).tobytes())

    workers = [threading.Thread(target=work, args=(f"{i}.tar",)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert os.path.samestat(os.fstat(2), before)
    assert results == [executable(X).tobytes()] * 4


def test_other_lines_on_standard_error_pass(capfd: pytest.CaptureFixture[str]) -> None:
    with library._without_scope_lines():
        os.write(2, b"kept\nWarning: Scope Saving: x\nWarning: Scope Loaded: y\nkept too\n")
    assert capfd.readouterr().err == "kept\nkept too\n"
