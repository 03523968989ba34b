"""Saved executables: the same in a fresh process; damage is refused, and nothing else happens."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tvmlab
from tests.oracles.models import array, dense, model, node, said, weight
from tvmlab.errors import InputError, PackageError, ToolchainError
from tvmlab.runtime import package

X = array(2, 4)


@pytest.fixture(scope="module")
def executable() -> tvmlab.Executable:
    return tvmlab.compile(tvmlab.load(dense()))


@pytest.fixture(scope="module")
def saved(executable: tvmlab.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "dense.tar"
    assert executable.save(path) == path
    assert [item.name for item in path.parent.iterdir()] == ["dense.tar"]
    return path


def test_a_loaded_executable_is_the_same(executable: tvmlab.Executable, saved: Path) -> None:
    loaded = tvmlab.load_executable(str(saved))
    assert loaded.signature == executable.signature
    assert str(loaded.target) == str(executable.target)
    assert loaded(X).tobytes() == executable(X).tobytes()
    with pytest.raises(InputError, match="is missing"):
        loaded()


RUN = """
import sys, numpy as np, tvmlab
x = np.frombuffer(bytes.fromhex(sys.argv[2]), "float32").reshape(2, 4)
print(tvmlab.load_executable(sys.argv[1])(x).tobytes().hex())
"""


def test_a_fresh_process_computes_the_same_bits(executable: tvmlab.Executable, saved: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(saved), X.tobytes().hex()],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stderr == ""
    assert run.stdout.strip() == executable(X).tobytes().hex()


def test_saving_replaces_what_was_there(executable: tvmlab.Executable, tmp_path: Path) -> None:
    path = tmp_path / "dense.tar"
    path.write_bytes(b"something else")
    executable.save(path)
    assert tvmlab.load_executable(path)(X).tobytes() == executable(X).tobytes()


def test_symbolic_sizes_are_kept(tmp_path: Path) -> None:
    proto = dense("N")
    executable = tvmlab.compile(tvmlab.load(proto, shapes={"x": ("n", 4)}))
    loaded = tvmlab.load_executable(executable.save(tmp_path / "n.tar"))
    assert loaded.signature == executable.signature
    assert loaded(array(5, 4)).shape == (5, 3)


def damaged(saved: Path, content: bytes) -> tvmlab.Executable | None:
    """Load damaged content: an executable, or None where it was refused in the right words."""
    path = saved.with_name("damaged.tar")
    path.write_bytes(content)
    try:
        return tvmlab.load_executable(path)
    except PackageError as error:
        refused = error
    finally:
        path.unlink()
    assert str(path) in said(refused)
    return None


@given(data=st.data())
def test_a_damaged_file_is_refused_or_means_the_same(
    data: Any, executable: tvmlab.Executable, saved: Path
) -> None:
    content = bytearray(saved.read_bytes())
    # Half of the places in the headers and the metadata, where damage is most diverse.
    places = st.integers(0, 2500) | st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3)):
        content[place] = byte
    loaded = damaged(saved, bytes(content))
    if loaded is not None:
        assert loaded.signature == executable.signature
        assert np.array_equal(loaded(X), executable(X))


@given(data=st.data())
def test_a_cut_file_is_refused(data: Any, saved: Path) -> None:
    content = saved.read_bytes()
    with tarfile.open(saved) as archive:
        last = archive.getmembers()[-1]
    end = last.offset_data + last.size
    assert damaged(saved, content[: data.draw(st.integers(0, end - 1))]) is None


@given(content=st.binary(max_size=2000))
def test_random_bytes_are_refused(saved: Path, content: bytes) -> None:
    assert damaged(saved, content) is None


def members(saved: Path) -> dict[str, bytes]:
    """The contents of an archive's members by their names."""
    found = {}
    with tarfile.open(saved) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content is not None
            found[entry.name] = content.read()
    return found


def archived(files: dict[str, bytes]) -> bytes:
    """An archive of these members."""
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return result.getvalue()


def rewritten(saved: Path, change: dict[str, Any] | str | bytes) -> bytes:
    """The saved file with other metadata, or some of its entries changed."""
    files = members(saved)
    if isinstance(change, dict):
        change = json.dumps(json.loads(files["metadata.json"]) | change)
    files["metadata.json"] = change.encode() if isinstance(change, str) else change
    return archived(files)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"format": None},
        {"inputs": []},
        {"inputs": [{"name": "x", "shape": [2, 5], "dtype": "float32"}]},
        {"inputs": 5},
        {"target": {"kind": "cuda"}},
        {"target": {"kind": "nonsense"}},
        {"sha256": "0" * 64},
        {"sha256": None},
        "",
        "[]",
        "5",
        '"text"',
        "{}",
        '{"format": 4}',
        "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass"),
        b"\xff\xfe",
        " " * (2 << 20),
    ],
    ids=lambda change: repr(change)[:40],
)
def test_metadata_that_was_changed_is_refused(saved: Path, change: Any) -> None:
    assert damaged(saved, rewritten(saved, change)) is None


def test_damaged_metadata_are_refused_with_a_place_and_without_a_parsers_words(
    saved: Path, tmp_path: Path
) -> None:
    whole = members(saved)["metadata.json"]
    path = tmp_path / "damaged.tar"
    for changed, where in (
        (b'"format"#', " in line 2, column 10"),
        (b'"f\xffrmat":', f" at byte {whole.index(b'format') + 1}"),
        (b'"fOrmat":', ": they do not say their format"),
    ):
        path.write_bytes(rewritten(saved, whole.replace(b'"format":', changed)))
        with pytest.raises(PackageError) as caught:
            tvmlab.load_executable(path)
        assert caught.value.what.endswith(f"the metadata are damaged{where}")
        assert "Expecting" not in said(caught.value)


def test_the_format_is_named(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "future.tar"
    path.write_bytes(rewritten(saved, {"format": 5}))
    with pytest.raises(PackageError, match="the file's format is 5, this tvmlab reads 4"):
        tvmlab.load_executable(path)


def test_a_link_in_the_archive_is_not_followed(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "link.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("metadata.json", "lib.so"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(entry)
    with pytest.raises(PackageError, match=r"no file metadata\.json where it should be"):
        tvmlab.load_executable(path)


def test_a_sparse_member_is_refused(saved: Path) -> None:
    header = tarfile.TarInfo("lib.so")
    header.size, header.pax_headers = 10, {"GNU.sparse.map": "0,10", "GNU.sparse.size": "99999999"}
    metadata = members(saved)["metadata.json"]
    with io.BytesIO() as file, tarfile.open(fileobj=file, mode="w") as archive:
        first = tarfile.TarInfo("metadata.json")
        first.size = len(metadata)
        archive.addfile(first, io.BytesIO(metadata))
        archive.addfile(header, io.BytesIO(bytes(10)))
        archive.close()
        assert damaged(saved, file.getvalue()) is None


def resealed(saved: Path, metadata: dict[str, Any], **content: bytes) -> bytes:
    """The saved file with other metadata and contents, and checksums that are right."""
    files = members(saved)
    files |= {{"library": "lib.so", "program": "program.vm"}[key]: content[key] for key in content}
    known = json.loads(files["metadata.json"]) | metadata
    known["files"] = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "metadata.json"
    }
    del known["sha256"]
    return archived(files | {"metadata.json": package._sealed(known)})


def test_a_file_that_is_resealed_is_read(executable: tvmlab.Executable, saved: Path) -> None:
    loaded = damaged(saved, resealed(saved, {}))
    assert loaded is not None
    assert np.array_equal(loaded(X), executable(X))


@pytest.mark.parametrize("inputs", [5, [5], [{}], [{"name": "x", "shape": 5, "dtype": "int8"}]])
def test_metadata_of_another_form_are_refused(saved: Path, inputs: Any) -> None:
    assert damaged(saved, resealed(saved, {"inputs": inputs})) is None


@pytest.mark.parametrize(
    "content", [{"library": b"\x7fELF" + bytes(200)}, {"program": b"no program"}]
)
def test_a_library_for_another_machine_is_refused(
    saved: Path, tmp_path: Path, content: dict[str, bytes]
) -> None:
    path = tmp_path / "alien.tar"
    path.write_bytes(resealed(saved, {}, **content))
    with pytest.raises(PackageError, match="the library cannot be loaded here") as caught:
        tvmlab.load_executable(path)
    assert "made for" in said(caught.value)


def test_the_processor_is_named_before_the_library_is_tried(saved: Path, tmp_path: Path) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    path = tmp_path / "other.tar"
    target = {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}
    path.write_bytes(resealed(saved, {"target": target}))
    with pytest.raises(PackageError, match=f"it is for a processor of {other}-linux") as caught:
        tvmlab.load_executable(path)
    said(caught.value)


def test_another_version_is_named(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.tar"
    path.write_bytes(resealed(saved, {"versions": {"tvm": "0.5.0"}}))
    with pytest.warns(RuntimeWarning, match=r"compiled with TVM 0\.5\.0, and this is 0\."):
        tvmlab.load_executable(path)


def test_constants_stand_beside_the_library(tmp_path: Path) -> None:
    """Linked into it, they would be in memory twice when the model runs."""
    constant = array(300, 400)
    proto = model(
        [node("Add", ["x", "w"], ["y"])], {"x": (300, 400)}, ["y"], [weight("w", constant)]
    )
    path = tvmlab.compile(tvmlab.load(proto)).save(tmp_path / "add.tar")
    sizes = {name: len(data) for name, data in members(path).items()}
    assert sizes["lib.so"] < constant.nbytes / 2
    assert constant.nbytes <= sizes["program.vm"] < 1.1 * constant.nbytes
    x = array(300, 400, seed=5)
    assert np.array_equal(tvmlab.load_executable(path)(x), x + constant)


def test_nothing_is_left_in_the_temporary_folder(
    executable: tvmlab.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    loaded = tvmlab.load_executable(executable.save(tmp_path / "dense.tar"))
    assert np.array_equal(loaded(X), executable(X))
    assert [item for item in place.iterdir() if item.is_file() or list(item.iterdir())] == []


@pytest.mark.parametrize("name", ["missing.tar", ".", "nul\0.tar", "x" * 5000])
def test_a_path_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError) as caught:
        tvmlab.load_executable(tmp_path / name)
    said(caught.value)


@pytest.mark.parametrize("name", ["no/such/folder.tar", ".", "nul\0.tar", "x" * 300])
def test_a_path_that_cannot_be_written(
    executable: tvmlab.Executable, tmp_path: Path, name: str
) -> None:
    with pytest.raises(PackageError, match="the file cannot be written") as caught:
        executable.save(os.path.join(tmp_path, name))
    said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_loaded_executable_is_not_saved_again(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot be saved again") as caught:
        tvmlab.load_executable(saved).save(tmp_path / "copy.tar")
    assert "copy the file" in said(caught.value)


def test_saving_without_a_compiler(
    executable: tvmlab.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolchainError, match="no compiler is here") as caught:
        executable.save(tmp_path / "dense.tar")
    assert "g++" in said(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_saving_for_another_processor_says_what_the_linker_said(tmp_path: Path) -> None:
    target = {"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mattr": ["+m"]}
    executable = tvmlab.compile(tvmlab.load(dense()), target)
    with pytest.raises(ToolchainError, match="could not be linked") as caught:
        executable.save(tmp_path / "dense.tar")
    assert "riscv64-linux-gnu" in said(caught.value)
