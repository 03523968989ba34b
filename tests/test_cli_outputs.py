"""Files that a command writes never take the place of files that it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers_cli import Program
from helpers_models import array, dense

import tvmlab


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    proto, folder = dense(), tmp_path_factory.mktemp("files")
    saved = tvmlab.compile(tvmlab.load(proto)).save(folder / "dense.tar")
    np.savez(folder / "x.npz", x=array(2, 4))
    return {
        "dense.onnx": proto.SerializeToString(),
        "dense.tar.relax": proto.SerializeToString(),
        "dense.tar": saved.read_bytes(),
        "x.npz": (folder / "x.npz").read_bytes(),
        "old.jsonl": b"",
    }


@pytest.fixture(autouse=True)
def _here(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "also.onnx").hardlink_to(tmp_path / "dense.onnx")
    (tmp_path / "link.onnx").symlink_to("dense.onnx")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("compile dense.onnx -o dense.onnx", "dense.onnx"),
        ("compile dense.onnx -o ./dense.onnx", "./dense.onnx, which is dense.onnx"),
        ("compile dense.onnx -o also.onnx", "also.onnx, which is dense.onnx"),
        ("compile link.onnx -o dense.onnx", "dense.onnx, which is link.onnx"),
        ("compile dense.tar.relax -o dense.tar --dump-code relax", "dense.tar.relax"),
        ("compile dense.onnx --tuning-records old.jsonl -o old.jsonl", "old.jsonl"),
        ("show dense.onnx -o dense.onnx", "dense.onnx"),
        ("partition dense.onnx -o dense.onnx", "dense.onnx"),
        ("run dense.tar -i x.npz -o dense.tar", "dense.tar"),
        ("run dense.tar -i x.npz -o x.npz", "x.npz"),
        ("profile dense.tar -i x.npz --flame x.npz", "x.npz"),
        ("profile dense.tar --trace new --flame ./new", "./new, which is new"),
    ],
)
def test_no_file_is_replaced(
    line: str, where: str, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    said = Program(capsys)(line).said
    assert "this file would be replaced" in said
    assert f"({where})" in said
    assert {name: Path(name).read_bytes() for name in files} == files
    assert not Path("new").exists()


def test_old_outputs_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What is not read is no input, whatever it is called."""
    done = Program(capsys)("compile dense.onnx -o dense.tar")
    assert done.code == 0
    assert Program(capsys)("run dense.tar -i x.npz -o out.npz").code == 0
    assert Program(capsys)("run dense.tar -i x.npz -o out.npz").code == 0


def test_a_device_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("null").symlink_to("/dev/null")
    said = Program(capsys)("run dense.tar -i x.npz -o null").said
    assert "A device or a pipe stands there (null)" in said
    assert Path("null").is_char_device()
