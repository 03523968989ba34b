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
def _written(files: dict[str, bytes], own_folder: Path) -> None:
    for name, content in files.items():
        (own_folder / name).write_bytes(content)
    (own_folder / "also.onnx").hardlink_to(own_folder / "dense.onnx")
    (own_folder / "link.onnx").symlink_to("dense.onnx")


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
    line: str, where: str, files: dict[str, bytes], program: Program
) -> None:
    said = program(line).said
    assert "this file would be replaced" in said
    assert f"({where})" in said
    assert {name: Path(name).read_bytes() for name in files} == files
    assert not Path("new").exists()


@pytest.mark.parametrize("line", ["show NAME -o NAME", "compile NAME -o NAME"])
def test_a_network_is_no_file_that_is_read(line: str, program: Program) -> None:
    line = line.replace("NAME", "digits_resnet")
    assert program(line).code == 0
    assert "this file would be replaced: it is read, too" in program(line).said


def test_old_outputs_are(program: Program) -> None:
    """What is not read is no input, whatever it is called."""
    done = program("compile dense.onnx -o dense.tar")
    assert done.code == 0
    assert program("run dense.tar -i x.npz -o out.npz").code == 0
    assert program("run dense.tar -i x.npz -o out.npz").code == 0


def test_a_device_is_not_replaced(program: Program) -> None:
    Path("null").symlink_to("/dev/null")
    said = program("run dense.tar -i x.npz -o null").said
    assert "A device or a pipe stands there (null)" in said
    assert Path("null").is_char_device()
