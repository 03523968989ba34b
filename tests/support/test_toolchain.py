"""Tools, build commands, extensions, the source package, the machine report, extras."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import io
import os
import platform
import re
import sys
import tarfile
from pathlib import Path

import psutil
import pytest

from tvmlab.errors import ToolchainError
from tvmlab.support import toolchain
from tvmlab.support.extras import need

ADD = """
#include <tvm/ffi/function.h>
#ifndef STEP
#define STEP 1
#endif
int64_t Add(int64_t x) { return x + STEP; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, Add)
"""


@pytest.fixture
def own_path(tmp_path, monkeypatch):
    """A PATH of one folder, so that only what a test puts there is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_find_tool(own_path, tmp_path, monkeypatch):
    script(own_path / "ninja", "exit 1")
    assert toolchain.find_tool("ninja").version == ""
    script(own_path / "cmake", "echo cmake version 3.25.1-rc1 built by gcc 12.2")
    assert toolchain.find_tool("cmake") == toolchain.Tool(own_path / "cmake", "3.25.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{own_path}")
    script(tmp_path / "cmake", "echo cmake version 4.0")
    assert toolchain.find_tool("cmake").path == own_path / "cmake"  # beside the running Python
    for name, hint in (("g++", "apt install g"), ("nothing-like-it", "its folder on PATH")):
        with pytest.raises(ToolchainError, match="is not installed") as caught:
            toolchain.find_tool(name)
        assert hint in caught.value.fix


def test_who_links_for_a_triple(own_path):
    own = script(own_path / "g++", "echo 13.2")
    assert toolchain.linker(f"{platform.machine()}-unknown-linux-gnu") == own
    for triple, name, package in (
        ("riscv64-unknown-linux-gnu", "riscv64-linux-gnu-g++", "g++-riscv64-linux-gnu"),
        ("arm64_32-none-linux-gnu", "arm64_32-linux-gnu-g++", "g++-arm64-32-linux-gnu"),
    ):
        with pytest.raises(ToolchainError, match=re.escape(f"{name} is not installed")) as caught:
            toolchain.linker(triple)
        assert f"apt install {package}." in caught.value.fix
        tool = script(own_path / name, "echo 13.2")
        assert toolchain.linker(triple) == tool


def test_run_says_command_code_and_last_lines():
    with pytest.raises(ToolchainError, match="failed with exit code 3") as caught:
        toolchain.run("seq 1 100; exit 3")
    assert caught.value.where == "seq 1 100; exit 3"
    assert caught.value.what.splitlines()[-1].strip() == "100"
    assert "    81\n" in caught.value.what
    assert "    80\n" not in caught.value.what
    with pytest.raises(ToolchainError, match=r"exit code -9\.\n  where"):
        toolchain.run("kill -9 $$")


def test_run_stops_the_whole_family_after_the_timeout(tmp_path):
    with pytest.raises(ToolchainError, match=r"after 0\.2 s"):
        toolchain.run("(sleep 600) & sleep 600", cwd=tmp_path, timeout=0.2)

    def there(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(tmp_path)
        except psutil.Error:
            return False

    left = [process for process in psutil.process_iter() if there(process)]
    assert psutil.wait_procs(left, timeout=300)[1] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One extension, built once for all tests that need one."""
    folder = tmp_path_factory.mktemp("extension")
    source = folder / "add.cc"
    source.write_text(ADD)
    (folder / "add.h").write_text("// beside it\n")
    cache = folder / "cache"
    return source, cache, toolchain.build_extension([source], name="add", folder=cache)


def test_build_and_load(built):
    _, cache, library = built
    assert library.parent.parent == cache
    assert {path.name for path in library.parent.iterdir()} == {".lock", "add.so"}
    assert toolchain.load_extension(library).add(41) == 42


@pytest.fixture
def recorder(monkeypatch):
    """A compiler that writes down its arguments and makes a file: no waiting."""
    seen = []

    def run(command, **_):
        seen.append([str(part) for part in command])
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
        return toolchain.Completed("", 0.0)

    tool = toolchain.compiler()
    monkeypatch.setattr(toolchain, "compiler", lambda: tool)
    monkeypatch.setattr(toolchain, "run", run)
    return seen


def test_what_is_built_again_is_what_has_changed(tmp_path, recorder, monkeypatch):
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    source, header = tmp_path / "a.cc", tmp_path / "a.h"
    source.write_text(ADD)
    header.write_text("")

    def build():
        return toolchain.build_extension([source], name="a")

    first = build()
    assert first.is_relative_to(tmp_path / "cache/native")
    os.utime(source)
    assert build() == first
    assert len(recorder) == 1
    libraries = {first}
    header.write_text("// changed")
    libraries.add(build())
    source.write_text(ADD + "// changed")
    libraries.add(build())
    tool = toolchain.Tool(Path("/usr/bin/other"), "1.0")
    monkeypatch.setattr(toolchain, "compiler", lambda: tool)
    libraries.add(build())
    assert len(libraries) == len(recorder) == 4


def test_a_build_that_fails_is_shown_and_leaves_nothing(tmp_path):
    source, cache = tmp_path / "broken.cc", tmp_path / "cache"
    source.write_text("int main( {")
    with pytest.raises(ToolchainError, match="expected"):
        toolchain.build_extension([source], name="a", folder=cache)
    assert {path.name for path in cache.rglob("*") if path.is_file()} == {".lock"}
    with pytest.raises(ToolchainError, match="cannot be written") as caught:
        toolchain.build_extension([source], name="a", folder=source)
    assert str(source) in caught.value.where
    assert "TVMLAB_CACHE" in caught.value.fix


PROJECT = """
cmake_minimum_required(VERSION 3.26)
project(three LANGUAGES CXX)
set(NUMBER 3 CACHE STRING "")
add_library(three MODULE three.cc)
target_compile_definitions(three PRIVATE NUMBER=${NUMBER})
set_target_properties(three PROPERTIES PREFIX "")
"""


def test_build_with_cmake(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT)
    source = project / "three.cc"
    source.write_text('extern "C" int number() { return NUMBER; }\n')

    def build(*options):
        return toolchain.build_with_cmake(
            project, name="three", options=options, folder=tmp_path / "cache"
        )

    first = build()
    assert ctypes.CDLL(str(first)).number() == 3
    stamp = first.stat().st_mtime_ns
    assert build() == first
    assert first.stat().st_mtime_ns == stamp  # it was not built again
    assert ctypes.CDLL(str(build("-DNUMBER=4"))).number() == 4
    source.write_text("int number( { }\n")
    with pytest.raises(ToolchainError, match=r"A build command failed(.|\n)*three\.cc:1"):
        build()
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 2


def archive(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name in members:
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"hi"))
    return path


def test_source_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ToolchainError, match="is missing or damaged") as caught:
        toolchain.tvm_ffi_source()
    assert "make setup" in caught.value.fix
    path = tmp_path / "share/tvmlab" / toolchain.FFI_SOURCE
    path.parent.mkdir(parents=True)
    archive(path, "top/file")
    with pytest.raises(ToolchainError, match="is missing or damaged"):
        toolchain.tvm_ffi_source()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(toolchain, "FFI_SHA256", digest)
    assert toolchain.tvm_ffi_source() == path


def test_unpack(tmp_path):
    top = toolchain.unpack(archive(tmp_path / "top.tar.gz", "top/x", "top/y/z"), tmp_path)
    assert top == tmp_path / "top"
    assert (top / "y/z").read_text() == "hi"
    short = tmp_path / "short.tar.gz"
    for content in (b"no archive", (tmp_path / "top.tar.gz").read_bytes()[:-20]):
        short.write_bytes(content)
        with pytest.raises(ToolchainError, match="cannot be unpacked"):
            toolchain.unpack(short, tmp_path / "inside")


def test_an_extra_that_is_missing_is_named():
    assert need("importlib", extra="none") is importlib
    with pytest.raises(ToolchainError) as caught:
        need("no_such_package.part", extra="models")
    assert caught.value.what == "the Python package 'no_such_package' is not installed"
    assert caught.value.fix == "pip install 'tvmlab[models]'"
