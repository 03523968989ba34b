"""Projects of CMake: built once for what they are made of."""

from __future__ import annotations

import ctypes

import pytest

from tvmlab.errors import ToolchainError
from tvmlab.support import toolchain

PROJECT = """
cmake_minimum_required(VERSION 3.26)
project(three LANGUAGES CXX)
add_library(three MODULE three.cc)
target_compile_definitions(three PRIVATE NUMBER=${NUMBER})
set_target_properties(three PROPERTIES PREFIX "")
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text('set(NUMBER 3 CACHE STRING "")\n' + PROJECT)
    (folder / "three.cc").write_text('extern "C" int number() { return NUMBER; }\n')
    return folder


def test_build_with_cmake(project, tmp_path, monkeypatch):
    def build(*options):
        return toolchain.build_with_cmake(
            project, name="three", options=options, folder=tmp_path / "cache"
        )

    first = build()
    assert ctypes.CDLL(str(first)).number() == 3
    assert first.is_relative_to(tmp_path / "cache")
    stamp = first.stat().st_mtime_ns
    assert build() == first
    assert first.stat().st_mtime_ns == stamp  # it was not built again
    four = build("-DNUMBER=4")
    assert ctypes.CDLL(str(four)).number() == 4
    monkeypatch.setenv("CXXFLAGS", "-DUNUSED")
    flagged = build()
    monkeypatch.delenv("CXXFLAGS")
    with (project / "three.cc").open("a") as file:
        file.write("// changed\n")
    assert len({first, four, flagged, build()}) == 4


def test_build_with_cmake_says_what_went_wrong(project, tmp_path):
    def build(**rest):
        return toolchain.build_with_cmake(project, name="three", **rest)

    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ToolchainError, match="cannot be written"):
        build(folder=blocked)
    (project / "three.cc").write_text("int number( { }\n")
    with pytest.raises(ToolchainError, match="A build command failed") as caught:
        build(folder=tmp_path / "cache")
    assert "three.cc:1" in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.so"))
    (project / "CMakeLists.txt").unlink()
    with pytest.raises(ToolchainError, match=r"CMakeLists\.txt"):
        build(folder=tmp_path / "cache")


def test_what_was_built_serves_where_tools_are_missing(project, tmp_path, monkeypatch):
    def build(**rest):
        return toolchain.build_with_cmake(project, name="three", folder=tmp_path / "cache", **rest)

    made = build()
    with monkeypatch.context() as context:
        context.setattr(toolchain, "compiler", _missing)
        assert build() == made
        with pytest.raises(ToolchainError, match="no compiler"):
            build(options=["-DNUMBER=5"])
        (project / "three.cc").write_text('extern "C" int number() { return 7; }\n')
        with pytest.raises(ToolchainError, match="no compiler"):
            build()


def _missing():
    raise ToolchainError("no compiler")
