from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tvmlab.support.files import whole


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_until_the_block_ends_the_old_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    with whole(str(path)) as part:
        part.write_text("half")
        assert part.parent == tmp_path
        assert path.read_text() == "old"
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert mode(path) == 0o640


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole(path) as part:  # noqa: PT012
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "error"), [("no/such/folder", FileNotFoundError), ("folder", IsADirectoryError)]
)
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str, error: type[Exception]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    with pytest.raises(error), whole(tmp_path / name) as part:
        part.write_text("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())
    assert (tmp_path / "file").read_text() == "old"


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [str(number) * 100_000 for number in range(8)]
    together = threading.Barrier(len(contents))

    def write(content: str) -> None:
        with whole(path) as part:
            part.write_text(content)
            together.wait(300)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text() in contents
    assert list(tmp_path.iterdir()) == [path]
