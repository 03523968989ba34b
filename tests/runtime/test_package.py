"""What a package says of itself, and how its library is linked."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.oracles.models import array, dense, model, node, said
from tvmlab.errors import PackageError, ToolchainError
from tvmlab.ir.signature import OUTPUT_NAMES, Input, Output, Signature
from tvmlab.runtime import package


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}))


@pytest.fixture(scope="module")
def saved(executable: tvmlab.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executable.save(tmp_path_factory.mktemp("package") / "dense.tar")


def content(path: Path, name: str) -> bytes:
    with tarfile.open(path) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def test_a_package_is_described(executable: tvmlab.Executable, saved: Path) -> None:
    found = package.describe(str(saved))
    assert found.inputs == (Input("x", ("n", 4), "float32"),)
    assert found.outputs == (Output("y", ("n", 3), "float32"),)
    assert found.target == json.loads(str(executable.target))
    assert found.versions == {
        "tvmlab": tvmlab.__version__,
        "tvm": tvm.__version__,
        "tvm_ffi": tvm_ffi.__version__,
    }
    assert found.runtimes == ()
    assert list(found.members) == ["lib.so", "program.vm"]
    for name, member in found.members.items():
        data = content(saved, name)
        assert member == package.Member(len(data), hashlib.sha256(data).hexdigest())


def test_a_description_is_a_table(saved: Path) -> None:
    lines = str(package.describe(saved)).splitlines()
    assert lines[:2] == ["input       x: float32[n, 4]", "output      y: float32[n, 3]"]
    assert [line.split()[0] for line in lines[2:]] == [
        *("target", "tvmlab", "tvm", "tvm_ffi", "lib.so", "program.vm")
    ]


def test_describing_loads_nothing(saved: Path, tmp_path: Path) -> None:
    """A library that no system would load is described like any other."""
    files = {name: content(saved, name) for name in ("metadata.json", "lib.so", "program.vm")}
    metadata = json.loads(files["metadata.json"])
    del metadata["sha256"]
    files["lib.so"] = b"no library"
    metadata["files"]["lib.so"] = {
        "bytes": 10,
        "sha256": hashlib.sha256(files["lib.so"]).hexdigest(),
    }
    files["metadata.json"] = package._sealed(metadata)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with tarfile.open(tmp_path / "odd.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in files:
            archive.add(tmp_path / name, name)
    assert package.describe(tmp_path / "odd.tar").members["lib.so"].bytes == 10


@given(data=st.data())
def test_what_is_described_is_what_was_saved(data: Any, saved: Path) -> None:
    """One byte is changed: the file is refused, or says the same."""
    wanted, whole = package.describe(saved), bytearray(saved.read_bytes())
    whole[data.draw(st.integers(0, 6000) | st.integers(0, len(whole) - 1))] ^= data.draw(
        st.integers(1, 255)
    )
    path = saved.with_name("damaged.tar")
    path.write_bytes(whole)
    try:
        found = package.describe(path)
    except PackageError as error:
        found, refused = wanted, said(error)
        assert str(path) in refused
    assert found == wanted


def test_the_outputs_of_every_kind() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((2,), "int8")):
            twice = R.concat([x, x], axis=0)
            shape = R.shape_of(x)
            return (twice, (y, shape))

    signature = Signature.of(Module["main"])
    assert signature.outputs == (
        Output("output_0", ("n * 2", 4), "float32"),
        Output("output_1_0", (2,), "int8"),
        Output("output_1_1", (2,), "shape"),
    )
    assert str(signature.outputs[0]) == "output_0: float32[n * 2, 4]"
    assert str(Output("a", None, "float32")) == "a: float32[...]"


def test_several_outputs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Transpose", ["x"], ["b"])]
    executable = tvmlab.compile(tvmlab.load(model(nodes, {"x": (2, 3)}, ["a", "b"])))
    found = package.describe(executable.save(tmp_path / "two.tar"))
    shapes = tuple(value.shape for value in executable(array(2, 3)))
    assert tuple(output.shape for output in found.outputs) == shapes == ((2, 3), (3, 2))
    assert [output.name for output in found.outputs] == ["a", "b"]
    assert tvmlab.load_executable(tmp_path / "two.tar").signature == executable.signature


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "a"], ["a", ""], []])
def test_names_that_do_not_serve(names: list[str]) -> None:
    """Too few or too many after a pass, one of two outputs, none: outputs go by their places."""
    nodes = [node("Relu", ["x"], ["a"]), node("Transpose", ["x"], ["b"])]
    main = tvmlab.load(model(nodes, {"x": (2, 3)}, ["a", "b"]))["main"]
    assert [one.name for one in Signature.of(main).outputs] == ["a", "b"]
    for told in (main.with_attr(OUTPUT_NAMES, names), main.without_attr(OUTPUT_NAMES)):
        assert [one.name for one in Signature.of(told).outputs] == ["output_0", "output_1"]


def test_what_could_not_be_read_again_is_not_written(
    executable: tvmlab.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MOST_METADATA", "_MOST_BYTES"):
        monkeypatch.setattr(package, name, 100)
        with pytest.raises(PackageError, match=r"have .* bytes; at most 100 are read") as caught:
            executable.save(tmp_path / "large.tar")
        said(caught.value)
        monkeypatch.undo()
    odd = Signature((Input("x\x1b[2J", ("n", 4), "float32"),), executable.signature.outputs)
    named = tvmlab.Executable(executable.vm_executable, executable.target, odd)
    with pytest.raises(PackageError, match="names with control characters"):
        named.save(tmp_path / "odd.tar")
    assert list(tmp_path.iterdir()) == []


def test_the_options_go_to_the_linker(executable: tvmlab.Executable, tmp_path: Path) -> None:
    path = executable.save(
        tmp_path / "named.tar",
        cross_compiler="g++",
        cross_compiler_options="-s '-Wl,-soname,with a space.so'",
    )
    assert b"with a space.so\0" in content(path, "lib.so")
    x = array(5, 4)
    assert (tvmlab.load_executable(path)(x) == executable(x)).all()


@pytest.mark.parametrize(
    ("compiler", "options", "words"),
    [
        ("no-such-g++", "", "no-such-g\\+\\+ is not installed"),
        ("g++", "'-O2", "the options for the cross compiler cannot be read"),
        ("g++", "--no-such-option", "could not be linked.*no-such-option(.|\n)*that it knows"),
        ("true", "", "could not be linked: .*true: it ended well, and wrote no library"),
    ],
)
def test_a_cross_compiler_that_does_not_work(
    executable: tvmlab.Executable, tmp_path: Path, compiler: str, options: str, words: str
) -> None:
    with pytest.raises(ToolchainError, match=words) as caught:
        executable.save(tmp_path / "x.tar", cross_compiler=compiler, cross_compiler_options=options)
    said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_another_processor_without_a_cross_compiler(tmp_path: Path) -> None:
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 1}
    with pytest.raises(ToolchainError, match="could not be linked") as caught:
        tvmlab.compile(tvmlab.load(dense()), target).save(tmp_path / "x.tar")
    assert "cross_compiler=" in said(caught.value)
