"""Hundreds of mutated packages: Python and C++ refuse each in words, or it means the same.

Some have checksums that are right: what is wrong with them stands in what they say.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.oracles.models import array, dense, said
from tests.runtime.deployed import refused
from tests.short import examples, fresh
from tvmlab.errors import PackageError, TvmlabError
from tvmlab.runtime import deploy, package
from tvmlab.support import toolchain

COUNT = examples(500)
X = array(2, 4)
NAMES = ("metadata.json", "lib.so", "program.vm")
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 40, 1 << 70, 1.5, float("nan"), "", "n", "../x", "\ud800", "\0", []),
    *({}, [[]], {"kind": 5}, [None], ["cuda"], "float32x4", "x" * 5000),
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutated")
    np.save(folder / "x.npy", X)
    return tvmlab.compile(tvmlab.load(dense())).save(folder / "dense.tar")


def header(name: str, size: bytes = b"00000000000\0", kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header with any size, under a checksum that is right."""
    made = bytearray(tarfile.TarInfo(name).tobuf(format=tarfile.USTAR_FORMAT))
    made[124:136], made[148:156], made[156:157] = size, b" " * 8, kind
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


# Sizes below 0 in base 256 and in an extension, and more than there is. The first of them leads
# some readers back to the header that they have just read, for ever.
BELOW = [b"\xff" * 10 + low for low in (b"\xfe\x00", b"\xfc\x00", b"\xff\x00")]
EXTENSION = header("x", b"00000000016\0", tarfile.XHDTYPE) + b"14 size=-1024\n".ljust(512, b"\0")
HOSTILE = {
    "base 256": header("a") + header("metadata.json", BELOW[0]),
    "two back": header("a") + header("b") + header("metadata.json", BELOW[1]),
    "half": header("metadata.json", BELOW[2]),
    "extended": EXTENSION + header("metadata.json"),
    "long name": header("././@LongLink", b"77777777777\0", tarfile.GNUTYPE_LONGNAME),
    "many": header("a") * 100_000,
}


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read() for name in NAMES}  # type: ignore[union-attr]


def archived(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def resealed(files: dict[str, bytes], metadata: bytes) -> bytes:
    named = [*(files | {"metadata.json": metadata}).items()]
    return archived([(tarfile.TarInfo(name), content) for name, content in named])


def replaced(tree: Any, rng: np.random.Generator) -> Any:
    """Put something odd in the place of one value in a tree, or leave it out."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.2:
        return ODD[rng.integers(len(ODD))]
    key = [*tree][rng.integers(len(tree))] if isinstance(tree, dict) else rng.integers(len(tree))
    copied = tree.copy()
    if rng.random() < 0.2:
        del copied[key]
    else:
        copied[key] = replaced(tree[key], rng)
    return copied


def odd_metadata(whole: bytes, files: dict[str, bytes], rng: np.random.Generator) -> bytes:
    known = json.loads(files["metadata.json"])
    del known["sha256"]
    if rng.random() < 0.2:  # no metadata at all, under a checksum that is right
        rest = [b'"', b'", ', b"[" * 100_000, b'", "a": ' + b"[" * 100_000, rng.bytes(200)]
        return resealed(files, package._sealed_text(rest[rng.integers(len(rest))]))
    changed = replaced(known, rng)
    if not isinstance(changed, dict) or not changed:
        changed = {"format": changed}
    return resealed(files, package._sealed(changed))


def odd_archive(whole: bytes, files: dict[str, bytes], rng: np.random.Generator) -> bytes:
    entries = [(tarfile.TarInfo(name), content) for name, content in files.items()]
    entry, _ = entries[rng.integers(3)]
    match rng.integers(7):
        case 0:
            entry.name = ["../lib.so", "/tmp/lib.so", "lib.so/", "", "x" * 200][rng.integers(5)]
        case 1:
            kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
            entry.type, entry.linkname = kinds[rng.integers(4)], "/etc/hostname"
        case 2:
            entries.reverse()
        case 3:
            entries = entries[: rng.integers(3)]
        case 4:
            entries = [(entry, content + b"\0") for entry, content in entries]
        case 5:
            hostile = [*HOSTILE.values()][rng.integers(4)]
            return hostile if rng.random() < 0.5 else whole[:512] + hostile
        case _:
            entry.pax_headers = {"GNU.sparse.map": "0,10", "GNU.sparse.size": "99999999"}
    return archived(entries)


def flipped(whole: bytes, files: dict[str, bytes], rng: np.random.Generator) -> bytes:
    content = bytearray(whole)
    # Half of the places in the headers and the metadata, where damage is most diverse.
    end = len(whole) if rng.random() < 0.5 else 3000
    content[rng.integers(end)] ^= rng.integers(1, 256)
    return bytes(content)


def moved(whole: bytes, files: dict[str, bytes], rng: np.random.Generator) -> bytes:
    """Cut the file off, cut a piece out, or put one in."""
    end = len(files["lib.so"]) + len(files["program.vm"])
    first, last = sorted(rng.integers(0, end, 2))
    put = b"" if rng.random() < 0.5 else rng.bytes(rng.integers(1, 600))
    return whole[:first] if rng.random() < 0.4 else whole[:first] + put + whole[last + 1 :]


KINDS = (odd_metadata, odd_archive, flipped, moved)


@pytest.fixture(scope="module")
def mutated(saved: Path) -> list[Path]:
    whole, files, rng = saved.read_bytes(), members(saved), np.random.default_rng(fresh(0))
    paths = []
    for number in range(COUNT):
        paths.append(saved.with_name(f"{number}.tar"))
        paths[-1].write_bytes(KINDS[number % len(KINDS)](whole, files, rng))
    return paths


def test_python_refuses_them(saved: Path, mutated: list[Path]) -> None:
    wanted, refusals = tvmlab.load_executable(saved)(X), 0
    for path in mutated:
        try:
            package.describe(path)
            found = tvmlab.load_executable(path)(X)
        except TvmlabError as error:
            said(error)
            refusals += 1
        else:
            assert (found == wanted).all()
    assert refusals > 0.8 * COUNT


@pytest.fixture(scope="module")
def sanitized() -> Path:
    flags = "-g1 -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
    return toolchain.build_with_cmake(
        deploy.NATIVE, name="deploy", options=[f"-DCMAKE_CXX_FLAGS_RELEASE={flags}"], program=True
    )


def results(program: Path, paths: list[Path], x: Path) -> Iterator[tuple[int, str, str]]:
    # What TVM's libraries keep until the end is no leak of ours.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    for path in paths:
        there = path.with_suffix("")
        there.mkdir()
        done = subprocess.run(
            [program, path, x, "--repeats", "0", "--output", there],
            **{"capture_output": True, "text": True, "timeout": 120, "env": environment},
        )
        yield done.returncode, done.stderr, str(there)


def test_the_program_refuses_them(saved: Path, mutated: list[Path], sanitized: Path) -> None:
    """Under the compiler's sanitizers, which end the program where it reads what is not its own."""
    wanted, refusals = tvmlab.load_executable(saved)(X), 0
    for code, words, there in results(sanitized, mutated, saved.with_name("x.npy")):
        assert code in (0, 1), words
        assert "Sanitizer" not in words
        assert "runtime error" not in words
        if code:
            assert "\n  where: " in words
            assert "\n  to do: " in words
            refusals += 1
        else:
            assert (np.load(f"{there}/0.npy") == wanted).all()
    assert refusals > 0.8 * COUNT


@pytest.fixture
def _a_minute() -> Iterator[None]:
    """Python has a minute, whatever it is doing."""

    def over(*_: Any) -> None:
        raise TimeoutError("a minute is over")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_a_minute")
@pytest.mark.parametrize("kind", HOSTILE)
def test_headers_that_lead_astray(kind: str, saved: Path) -> None:
    """They are refused at once: three headers are read, and none of these is the first."""
    path = saved.with_name("hostile.tar")
    path.write_bytes(HOSTILE[kind] + bytes(1024))
    with pytest.raises(PackageError, match=r"metadata\.json (where it should be|is not a file)"):
        package.describe(path)
    assert not package.is_package(path)


@pytest.mark.parametrize("names", [NAMES[::-1], (*NAMES[:2], "more", NAMES[2]), NAMES[:1] * 2])
def test_members_come_in_their_order(names: tuple[str, ...], saved: Path) -> None:
    """Of archives that others wrote both readers take the same."""
    files, path = members(saved) | {"more": b""}, saved.with_name("order.tar")
    path.write_bytes(archived([(tarfile.TarInfo(name), files[name]) for name in names]))
    with pytest.raises(PackageError, match="where it should be"):
        package.describe(path)
    assert "where it should be" in refused(path, saved.with_name("x.npy"))


def described_as(saved: Path, change: dict[str, Any]) -> Path:
    """The package with other metadata, under a checksum that is right."""
    files = members(saved)
    known = json.loads(files["metadata.json"]) | change
    del known["sha256"]
    path = saved.with_name("described.tar")
    path.write_bytes(resealed(files, package._sealed(known)))
    return path


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nfake line", "\x7f", "\x9b31m", "n\0"])
@pytest.mark.parametrize("place", ["name", "shape", "runtime"])
def test_names_do_nothing_to_a_terminal(name: str, place: str, saved: Path) -> None:
    (said_so,) = json.loads(members(saved)["metadata.json"])["inputs"]
    path = described_as(
        saved,
        {
            "name": {"inputs": [said_so | {"name": name}]},
            "shape": {"inputs": [said_so | {"shape": [name, 4]}]},
            "runtime": {"runtimes": [name]},
        }[place],
    )
    with pytest.raises(PackageError, match="control characters in its names"):
        package.describe(path)
    assert "control characters in its names" in refused(path, saved.with_name("x.npy"))


def test_another_processor_is_named(saved: Path) -> None:
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    path = described_as(saved, {"target": {"kind": "llvm", "mtriple": f"{other}-linux-gnu"}})
    words = refused(path, saved.with_name("x.npy"))
    assert f"compiled for a processor of {other}-linux-gnu" in words


def test_a_program_that_cannot_be_read(saved: Path) -> None:
    files = members(saved) | {"program.vm": b""}
    known = json.loads(files["metadata.json"])
    del known["sha256"]
    digest = hashlib.sha256(b"").hexdigest()
    known["files"]["program.vm"] = {"bytes": 0, "sha256": digest}
    path = saved.with_name("none.tar")
    path.write_bytes(resealed(files, package._sealed(known)))
    assert "the program cannot be read" in refused(path, saved.with_name("x.npy"))


def test_a_folder_and_an_empty_file_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tar").touch()
    for path in (tmp_path, tmp_path / "empty.tar"):
        with pytest.raises(TvmlabError):
            package.describe(path)
        assert str(path) in refused(path, saved.with_name("x.npy"))
    with pytest.raises(PackageError, match="cannot be read: Is a directory"):
        package.describe(tmp_path)
