"""Saved executables: the same bits in another process; a file that is not whole is refused."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.oracles.models import array, dense, model, node, said, weight
from tests.runtime.deployed import rewritten
from tvmlab.errors import InputError, PackageError, ToolchainError
from tvmlab.runtime import package
from tvmlab.runtime.signature import Input, Output

X = array(2, 4)


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}))


@pytest.fixture(scope="module")
def saved(executable: tvmlab.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "dense.so"
    assert executable.save(path) == path
    assert [item.name for item in path.parent.iterdir()] == ["dense.so"]
    return path


def test_a_loaded_executable_is_the_same(executable: tvmlab.Executable, saved: Path) -> None:
    loaded = tvmlab.load_executable(str(saved))
    assert loaded.signature == executable.signature
    assert str(loaded.target) == str(executable.target)
    assert loaded(X).tobytes() == executable(X).tobytes()
    assert loaded(array(5, 4)).shape == (5, 3)
    with pytest.raises(InputError, match="is missing"):
        loaded()


def test_the_largest_size_is_saved(tmp_path: Path) -> None:
    mod = tvmlab.load(dense("N"), shapes={"x": ("n", 4)})
    mod["main"] = mod["main"].with_attr("tir_var_upper_bound", {"n": 3})
    path = tvmlab.compile(mod).save(tmp_path / "bounded.so")
    assert "n is at most 3" in str(package.describe(path))
    loaded = tvmlab.load_executable(path)
    assert loaded(array(3, 4)).shape == (3, 3)
    with pytest.raises(InputError, match=r"size n of input 'x' is 4.* at most 3"):
        loaded(array(4, 4))


RUN = """
import sys, numpy as np, tvmlab
x = np.frombuffer(bytes.fromhex(sys.argv[2]), "float32").reshape(2, 4)
print(tvmlab.load_executable(sys.argv[1])(x).tobytes().hex())
"""


def test_a_fresh_process_computes_the_same_bits(executable: tvmlab.Executable, saved: Path) -> None:
    line = [sys.executable, "-c", RUN, str(saved), X.tobytes().hex()]
    run = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert run.stderr == ""
    assert run.stdout.strip() == executable(X).tobytes().hex()


def test_tvm_alone_loads_it(executable: tvmlab.Executable, saved: Path) -> None:
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(saved)), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(X)).numpy()
    assert result.tobytes() == executable(X).tobytes()


def test_a_file_is_replaced_while_its_library_is_loaded(tmp_path: Path) -> None:
    """The system's loader would return the library that it has under that name."""
    constants, loaded = [array(3, seed=seed) for seed in range(3)], []
    for w in constants:
        proto = model([node("Add", ["x", "w"], ["y"])], {"x": (3,)}, ["y"], [weight("w", w)])
        path = tvmlab.compile(tvmlab.load(proto)).save(tmp_path / "add.so")
        loaded += [tvmlab.load_executable(path), tvmlab.load_executable(path)]
        del loaded[-2]
    path.unlink()
    for one, w in zip(loaded, constants, strict=True):
        assert np.array_equal(one(array(3)), array(3) + w)


def test_a_package_is_described(executable: tvmlab.Executable, saved: Path) -> None:
    content = saved.read_bytes()
    assert package.describe(str(saved)) == package.Description(
        inputs=(Input("x", ("n", 4), "float32"),),
        outputs=(Output("y", ("n", 3), "float32"),),
        most={},
        target=json.loads(str(executable.target)),
        versions={each.__name__: each.__version__ for each in (tvmlab, tvm, tvm_ffi)},
        runtimes=(),
        work=package.describe(saved).work,
        bytes=len(content),
        crc32=f"{zlib.crc32(content[:-12]):08x}",
    )


def refused(path: Path) -> str:
    """Load a file that is refused; return what the error says."""
    with pytest.raises(PackageError) as caught:
        package.describe(path)
    with pytest.raises(PackageError) as loading:
        tvmlab.load_executable(path)
    assert str(loading.value) == str(caught.value)
    assert str(path) in said(caught.value)
    return str(caught.value)


@given(data=st.data())
def test_a_flipped_byte_is_refused(data: Any, saved: Path) -> None:
    content, path = bytearray(saved.read_bytes()), saved.with_name("flipped.so")
    # Half of the places in the description and what follows it.
    places = st.integers(0, len(content) - 1) | st.integers(len(content) - 1000, len(content) - 1)
    content[data.draw(places)] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    refused(path)
    path.unlink()


@given(data=st.data())
def test_a_truncated_file_is_refused(data: Any, saved: Path) -> None:
    content, path = saved.read_bytes(), saved.with_name("cut.so")
    path.write_bytes(content[: data.draw(st.integers(4, len(content) - 1))])
    assert "no description at its end: the file was cut off" in refused(path)
    path.unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "this is not a file that Executable.save wrote"),
        (bytes(100) + b"TVMLAB\0\7", "the file's format is 7, this tvmlab reads 6"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "other.so").write_bytes(content)
    assert words in refused(tmp_path / "other.so")


def test_another_processor_is_named(saved: Path, tmp_path: Path) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    target = {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}
    path = rewritten(saved, tmp_path / "other.so", target=target)
    with pytest.raises(PackageError, match=f"it is for a processor of {other}-linux") as caught:
        tvmlab.load_executable(path)
    said(caught.value)


def test_another_version_is_named(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "old.so", versions={"tvm": "0.5.0"})
    with pytest.warns(RuntimeWarning, match=r"compiled with TVM 0\.5\.0, but this is 0\."):
        tvmlab.load_executable(path)


def test_what_the_system_says_of_a_library_is_told(saved: Path, tmp_path: Path) -> None:
    (path := tmp_path / "alien.so").write_bytes(b"\x7fELF" + bytes(200))
    package.append(path, package.describe(saved))
    with pytest.raises(PackageError, match="the library cannot be loaded here") as caught:
        tvmlab.load_executable(path)
    assert "made for" in said(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dense.tar", r"its name has to end in \.so"),
        ("no/such/folder.so", "the file cannot be written"),
        ("nul\0.so", "the file cannot be written"),
    ],
)
def test_a_path_that_cannot_be_written(
    executable: tvmlab.Executable, tmp_path: Path, name: str, words: str
) -> None:
    with pytest.raises(PackageError, match=words) as caught:
        executable.save(os.path.join(tmp_path, name))
    said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_loaded_executable_is_not_saved_again(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot be saved again") as caught:
        tvmlab.load_executable(saved).save(tmp_path / "copy.so")
    assert "copy the file" in said(caught.value)


@pytest.mark.parametrize(
    ("compiler", "options", "words"),
    [
        ("no-such-g++", "", "no-such-g\\+\\+ is not installed"),
        ("g++", "'-O2", "could not be linked: No closing quotation"),
        ("g++", "--no-such-option", "could not be linked.*no-such-option(.|\n)*that it knows"),
    ],
)
def test_a_cross_compiler_that_does_not_work(
    executable: tvmlab.Executable, tmp_path: Path, compiler: str, options: str, words: str
) -> None:
    with pytest.raises(ToolchainError, match=words) as caught:
        executable.save(tmp_path / "x.so", cross_compiler=compiler, cross_compiler_options=options)
    said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_saving_without_a_compiler(
    executable: tvmlab.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolchainError, match="there is no C\\+\\+ compiler") as caught:
        executable.save(tmp_path / "dense.so")
    assert "g++" in said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_another_processor_without_a_cross_compiler(tmp_path: Path) -> None:
    target = {"kind": "llvm", "mtriple": "riscv64-none-linux-gnu", "mattr": ["+m"]}
    there = tvmlab.compile(tvmlab.load(dense()), target)
    tool = "riscv64-linux-gnu-g++"
    with pytest.raises(ToolchainError, match="could not be linked") as caught:
        there.save(tmp_path / "x.so")
    debian = "apt-get install g++-riscv64-linux-gnu)"
    for spelling in (f'cross_compiler="{tool}"', f"--cross-compiler {tool}", debian):
        assert spelling in said(caught.value)
