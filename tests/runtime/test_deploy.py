"""The C++ program: the same bits as Python; what is no input is refused in words."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import helper

import tvmlab
from tests.oracles.models import array, dense, model, node, value
from tests.runtime.deployed import outputs, refused, rewritten, run
from tvmlab import models
from tvmlab.errors import ToolchainError
from tvmlab.runtime import deploy
from tvmlab.runtime.package import append, describe


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[tvmlab.Executable, Path]:
    executable = tvmlab.compile(tvmlab.load(models.digits_resnet()))
    return executable, executable.save(tmp_path_factory.mktemp("deploy") / "digits.so")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[tvmlab.Executable, Path]:
    executable = tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}))
    return executable, executable.save(tmp_path_factory.mktemp("deploy") / "small.so")


@pytest.fixture
def x(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", array(2, 4))
    return tmp_path / "x.npy"


def test_the_digits_have_the_same_bits(digits: Any, tmp_path: Path) -> None:
    executable, package = digits
    for digit in models.digits().x_test[:5]:
        image = digit[None]
        (found,) = outputs(tmp_path, package, image)
        wanted = executable(image)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


def test_the_smallest_has_the_same_bits(digits: Any, tmp_path: Path) -> None:
    executable, package = digits
    image = array(1, 1, 8, 8)
    np.save(tmp_path / "x.npy", image)
    line = [deploy.program("smallest"), package, tmp_path / "x.npy"]
    printed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    numbers = np.float32([float.fromhex(text) for text in printed])
    assert numbers.tobytes() == executable(image).tobytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-1], "it has no description of format 6 at its end"),
        (lambda content: b"\0" + content[1:], "the checksum is wrong: the file is damaged"),
    ],
)
def test_a_damaged_package_is_refused(
    change: Callable[[bytes], bytes], words: str, small: Any, x: Path, tmp_path: Path
) -> None:
    (tmp_path / "damaged.so").write_bytes(change(small[1].read_bytes()))
    assert words in refused(tmp_path / "damaged.so", x)


def test_another_processor_is_named(small: Any, x: Path, tmp_path: Path) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    target = {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}
    path = tmp_path / "other.so"
    path.write_bytes(b"library")
    append(path, replace(describe(small[1]), target=target))
    assert f"it was compiled for a processor of {other}-linux-gnu" in refused(path, x)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=st.integers(0, 9))
def test_any_rows_of_any_numbers(data: Any, rows: int, small: Any, tmp_path_factory: Any) -> None:
    """Infinities and what is no number go through the same kernels."""
    executable, package = small
    rows_of_numbers = data.draw(arrays.arrays("float32", (rows, 4), elements=st.floats(width=32)))
    (found,) = outputs(tmp_path_factory.mktemp("rows"), package, rows_of_numbers)
    assert found.tobytes() == executable(rows_of_numbers).tobytes()


def test_the_largest_are_printed(digits: Any, tmp_path: Path) -> None:
    executable, package = digits
    image = array(1, 1, 8, 8)
    np.save(tmp_path / "x.npy", image)
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"the digit {digit}" for digit in range(10)))
    done = run(package, tmp_path / "x.npy", "--top", 3, "--labels", labels, "--repeats", 2)
    lines = done.stdout.splitlines()
    order = np.argsort(-executable(image)[0], kind="stable")[:3]
    assert [line.split(None, 2)[0] for line in lines[:3]] == [str(place) for place in order]
    assert [line.split(None, 2)[2] for line in lines[:3]] == [f"the digit {p}" for p in order]
    assert re.fullmatch(r"\d+\.\d{3} ms per call, the median of 2", lines[3])
    assert len(lines) == 4


DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64"])
def test_every_dtype(dtype: str, tmp_path: Path) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [value(name, kind, shape) for name, shape in (("x", (8, 1)), ("y", (1, 8)))]
    proto = model([node("Transpose", ["x"], ["y"])], ends[:1], ends[1:])
    package = tvmlab.compile(tvmlab.load(proto)).save(tmp_path / "t.so")
    odd = [0, 1, 3, 100] if dtype[0] in "iub" else [6e-8, -1.5, np.inf, 3.25, np.nan, -0.0, 65504]
    x = np.resize(np.array(odd).astype(dtype), (8, 1))
    np.save(tmp_path / "x.npy", x)
    top = 0 if dtype == "float16" else 8
    done = run(package, tmp_path / "x.npy", "--top", top, "--repeats", 0, "--output", tmp_path)
    found = np.load(tmp_path / "0.npy")
    assert (found.dtype, found.tobytes()) == (x.dtype, x.T.tobytes())
    if not top:
        assert "leave them out with --top 0" in refused(package, tmp_path / "x.npy")
        return
    numbers = x[:, 0].astype("float64")
    order = np.argsort(-numbers, kind="stable")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [int(row[0]) for row in rows] == list(order)
    np.testing.assert_allclose([float(row[1]) for row in rows], numbers[order], rtol=1e-5)


def test_a_command_line_that_is_not_understood() -> None:
    for words, wrong in (
        ([], "the package is missing"),
        (["x.so", "--top", "five"], "'five' is not a number"),
        (["x.so", "--unknown", "1"], "unrecognized option '--unknown'"),
    ):
        done = run(*words)
        assert done.returncode == 2
        assert wrong in done.stderr
        assert "\ndeploy PACKAGE" in done.stderr
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("deploy PACKAGE")


def test_inputs_that_do_not_fit(small: Any, x: Path, tmp_path: Path) -> None:
    package = small[1]
    np.save(tmp_path / "double.npy", array(2, 4).astype("float64"))
    np.save(tmp_path / "long.npy", array(2, 5))
    np.save(tmp_path / "flat.npy", array(8))
    assert "0 inputs were passed, expected 1" in refused(package)
    assert "2 inputs were passed" in refused(package, x, x)
    for name, what in (
        ("double.npy", "is of dtype float64"),
        ("long.npy", "has the shape [2, 5]"),
        ("flat.npy", "has the shape [8]"),
    ):
        assert refused(package, tmp_path / name) == (
            f"input x {what}\n  where: {tmp_path / name}\n  to do: pass inputs x: float32[n, 4]\n"
        )


def test_a_size_beyond_the_models_bound(small: Any, x: Path, tmp_path: Path) -> None:
    package = rewritten(small[1], tmp_path / "bounded.so", most={"n": 1})
    what = "size n of input x is 2, but the model was exported for at most 1"
    assert refused(package, x).startswith(f"{what}\n  where: {x}\n")
    (found,) = outputs(tmp_path, package, array(1, 4))
    assert found.shape == (1, 3)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_array_is_refused_or_read(data: Any, small: Any, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    np.save(path, array(2, 4))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    if run(small[1], path, "--repeats", 0).returncode:
        refused(small[1], path)


def test_files_that_are_missing(small: Any, x: Path, tmp_path: Path) -> None:
    package = small[1]
    assert "No such file" in refused(tmp_path / "missing.so", x)
    assert "the package cannot be read" in refused(tmp_path, x)
    assert "No such file" in refused(package, tmp_path / "missing.npy")
    done = run(package, x, "--output", tmp_path / "missing", "--repeats", 0)
    assert done.returncode == 1
    assert "the output cannot be written" in done.stderr
    assert "a library cannot be loaded" in refused(package, x, "--library", tmp_path / "no.so")


def test_a_runtime_that_was_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ToolchainError, match="no-such-g\\+\\+ is not installed"):
        deploy.program(cross_compiler="no-such-g++", folder=tmp_path)
    with pytest.raises(ToolchainError, match="'aarch64' is missing") as caught:
        deploy.packages("aarch64", folder=tmp_path)
    assert "make cross" in str(caught.value)
    (tmp_path / "share" / "tvmlab").mkdir(parents=True)
    for name in (f"apache_tvm-{tvm.__version__}", f"apache_tvm_ffi-{tvm_ffi.__version__}"):
        (tmp_path / "share" / "tvmlab" / f"{name}-any_aarch64.whl").write_bytes(b"another")
    with pytest.raises(ToolchainError, match="cannot be unpacked: File is not a zip file"):
        deploy.packages("aarch64", folder=tmp_path)
