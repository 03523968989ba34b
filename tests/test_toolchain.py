"""Tools, build commands, extensions, the source package, the machine report."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import threading
from pathlib import Path

import psutil
import pytest

from tvmlab import _machine, toolchain
from tvmlab.errors import ToolchainError

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


def test_find_tool_reads_the_version(own_path):
    script(own_path / "cmake", "echo cmake version 3.27.4-rc1 built by gcc 12.2")
    tool = toolchain.find_tool("cmake", minimum=(3, 26))
    assert (tool.path, tool.version) == (own_path / "cmake", (3, 27, 4))
    assert str(tool) == "cmake 3.27.4"


def test_find_tool_passes_over_one_that_is_too_old(own_path, tmp_path, monkeypatch):
    newer = tmp_path / "newer"
    newer.mkdir()
    script(own_path / "cmake", "echo cmake version 3.25.1")
    script(newer / "cmake", "echo cmake version 4.0")
    with pytest.raises(ToolchainError, match=r"cmake is too old: 3\.26 is needed") as caught:
        toolchain.find_tool("cmake", minimum=(3, 26))
    assert "is 3.25.1" in caught.value.where
    assert "pip install" in caught.value.fix
    monkeypatch.setenv("PATH", f"{own_path}:{newer}")
    assert toolchain.find_tool("cmake", minimum=(3, 26)).path == newer / "cmake"
    assert toolchain.find_tool("cmake").path == own_path / "cmake"


def test_find_tool_says_what_to_install(own_path):
    for name, hint in (("g++", "apt install g"), ("nothing-like-it", "Install nothing-like-it")):
        with pytest.raises(ToolchainError, match="is not installed") as caught:
            toolchain.find_tool(name)
        assert hint in caught.value.fix


def test_find_tool_of_no_known_version(own_path):
    script(own_path / "make", "exit 1")
    assert toolchain.find_tool("make").version == ()
    with pytest.raises(ToolchainError, match="too old"):
        toolchain.find_tool("make", minimum=(4,))


def test_compiler_prefers_cxx_then_gcc_then_clang(own_path, monkeypatch):
    with pytest.raises(ToolchainError, match="No C\\+\\+ compiler"):
        toolchain.compiler()
    script(own_path / "clang++", "echo clang version 15.0.1")
    assert toolchain.compiler().name == "clang++"
    script(own_path / "g++", "echo g++ 12.2.0")
    assert toolchain.compiler().name == "g++"
    script(own_path / "mine", "echo mine 1.0")
    monkeypatch.setenv("CXX", "mine")
    assert toolchain.compiler().name == "mine"
    monkeypatch.setenv("CXX", "gone")
    with pytest.raises(ToolchainError, match="gone is not installed"):
        toolchain.compiler()


def test_environment_puts_our_tools_first(monkeypatch):
    monkeypatch.setenv("PATH", "/elsewhere")
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.setenv("MAKELEVEL", "1")  # what `make test` above us sets
    own = toolchain.environment({"EXTRA": "1"})
    assert "MAKELEVEL" not in own
    assert own["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/elsewhere"
    assert (own["EXTRA"], own["LC_ALL"]) == ("1", "C")
    assert "CLICOLOR_FORCE" not in own


def test_run_keeps_output_in_order(tmp_path):
    done = toolchain.run(
        "echo one; echo two >&2; pwd; echo $HELLO", cwd=tmp_path, env={"HELLO": "x"}
    )
    assert done.output == f"one\ntwo\n{tmp_path.resolve()}\nx\n"
    assert done.seconds > 0
    assert toolchain.run(["echo", "a  b", "$HELLO"]).output == "a  b $HELLO\n"
    assert toolchain.run(["echo", "a  b"]).command == "echo 'a  b'"


def test_run_says_command_code_and_last_lines():
    with pytest.raises(ToolchainError, match="failed with exit code 3") as caught:
        toolchain.run("seq 1 100; exit 3")
    assert caught.value.where == "seq 1 100; exit 3"
    assert caught.value.what.splitlines()[-1].strip() == "100"
    assert "    89\n" in caught.value.what
    assert "    88\n" not in caught.value.what
    with pytest.raises(ToolchainError, match="first error: here") as caught:
        toolchain.run("echo noise; echo first error: here; seq 1 100; exit 1")
    assert "noise" not in caught.value.what
    with pytest.raises(ToolchainError, match=r"exit code -9\.\n  where"):
        toolchain.run("kill -9 $$")


def test_run_that_cannot_start(tmp_path):
    with pytest.raises(ToolchainError, match="cannot start"):
        toolchain.run([tmp_path / "no-such-program"])
    with pytest.raises(ToolchainError, match="cannot start"):
        toolchain.run("true", cwd=tmp_path / "no-such-folder")


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


def test_run_shows_bytes_that_are_no_text():
    assert toolchain.run(r"printf 'a\377b'").output == "a\ufffdb"


def test_ffi_flags_are_those_of_the_config_tool():
    compile_flags, link_flags = toolchain.ffi_flags()
    include = next(flag[2:] for flag in compile_flags if flag.startswith("-I"))
    assert (Path(include) / "tvm/ffi/function.h").is_file()
    assert "-std=c++17" in compile_flags
    folder = next(flag[2:] for flag in link_flags if flag.startswith("-L"))
    assert (Path(folder) / "libtvm_ffi.so").is_file()
    assert "-ltvm_ffi" in link_flags


def test_a_folder_of_tvm_ffi_may_have_a_space():
    line = "-I/a b/include -I/a b/dlpack -std=c++17"
    assert toolchain._flags(line) == ["-I/a b/include", "-I/a b/dlpack", "-std=c++17"]


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
    assert [path.name for path in library.parent.iterdir()] == ["add.so"]
    assert toolchain.load_extension(library).add(41) == 42


@pytest.fixture
def recorder(monkeypatch):
    """A compiler that writes down its arguments and makes a file: no waiting."""
    seen = []

    def run(command, **_):
        seen.append([str(part) for part in command])
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
        return toolchain.Completed("", "", 0.0)

    flags = toolchain.ffi_flags()
    monkeypatch.setattr(toolchain, "ffi_flags", lambda: flags)
    monkeypatch.setattr(toolchain, "run", run)
    return seen


def test_build_is_cached_by_content(tmp_path, recorder, monkeypatch):
    source, header = tmp_path / "a.cc", tmp_path / "a.h"
    source.write_text(ADD)
    header.write_text("")

    def build(**options):
        return toolchain.build_extension([source], folder=tmp_path / "cache", **options)

    first = build()
    os.utime(source)
    assert build() == first
    assert len(recorder) == 1
    libraries = {first, build(flags=["-DSTEP=2"])}
    header.write_text("// changed")
    libraries.add(build())
    source.write_text(ADD + "// changed")
    libraries.add(build())
    monkeypatch.setenv("CXX", "clang++" if toolchain.compiler().name == "g++" else "g++")
    tool = toolchain.Tool("other", Path("/usr/bin/other"), (1,))
    monkeypatch.setattr(toolchain, "compiler", lambda: tool)
    libraries.add(build())
    assert len(libraries) == len(recorder) == 5
    assert "-DSTEP=2" in recorder[1]


def test_build_uses_the_cache_folder(tmp_path, recorder, monkeypatch):
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "a.cc"
    source.write_text(ADD)
    assert toolchain.build_extension([source]).is_relative_to(tmp_path / "cache/native")


def widen(path, _):
    path.chmod(path.stat().st_mode | 0o020)


def give_away(path, monkeypatch):
    """Let `path` belong to another user, as far as this process can see."""
    stat = Path.stat

    def of_another(self, **options):
        found = list(stat(self, **options))
        if self == path:
            found[4] = os.geteuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", of_another)


@pytest.mark.parametrize("whose", ["library", "folder"])
@pytest.mark.parametrize("change", [widen, give_away])
def test_what_another_user_can_change_is_not_loaded(tmp_path, recorder, monkeypatch, whose, change):
    source = tmp_path / "a.cc"
    source.write_text(ADD)
    mask = os.umask(0o002)  # Debian's for a user with a group of the same name
    try:
        library = toolchain.build_extension([source], folder=tmp_path / "cache")
        assert toolchain.build_extension([source], folder=tmp_path / "cache") == library
        assert len(recorder) == 1
        change(library if whose == "library" else library.parent, monkeypatch)
        if (whose, change) == ("folder", give_away):
            with pytest.raises(ToolchainError, match="belongs to another user") as caught:
                toolchain.build_extension([source], folder=tmp_path / "cache")
            assert "TVMLAB_CACHE" in caught.value.fix
        else:
            assert toolchain.build_extension([source], folder=tmp_path / "cache") == library
            assert len(recorder) == 2
        monkeypatch.undo()
        modes = library.stat().st_mode | library.parent.stat().st_mode
        assert not modes & 0o022
    finally:
        os.umask(mask)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_above_that_another_user_can_change(tmp_path, recorder, monkeypatch, depth):
    source, folder = tmp_path / "a.cc", tmp_path / "outer" / "cache"
    source.write_text(ADD)
    folder.mkdir(parents=True)
    library = toolchain.build_extension([source], folder=folder)
    above = library.parents[depth]
    above.chmod(0o777)
    with pytest.raises(ToolchainError, match="can be written by other users") as caught:
        toolchain.build_extension([source], folder=folder)
    assert caught.value.where == str(above)
    assert caught.value.fix.startswith(f"Run `chmod go-w {above}`, or set TVMLAB_CACHE")
    above.chmod(0o1777)
    assert toolchain.build_extension([source], folder=folder) == library
    above.chmod(0o755)
    give_away(above, monkeypatch)
    with pytest.raises(ToolchainError, match="belongs to another user") as caught:
        toolchain.build_extension([source], folder=folder)
    assert "without sudo" in caught.value.fix
    assert len(recorder) == 1


def test_two_builds_at_once_both_succeed(tmp_path, recorder):
    source = tmp_path / "a.cc"
    source.write_text(ADD)
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(toolchain.build_extension([source], folder=tmp_path))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert [path.name for path in found[0].parent.iterdir()] == ["extension.so"]


def test_build_errors_are_shown_and_leave_nothing(tmp_path):
    source = tmp_path / "broken.cc"
    source.write_text("int main( {")
    with pytest.raises(ToolchainError, match="expected"):
        toolchain.build_extension([source], folder=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_build_needs_sources(tmp_path):
    with pytest.raises(ToolchainError, match="nothing to build"):
        toolchain.build_extension([])
    with pytest.raises(ToolchainError, match="cannot be read"):
        toolchain.build_extension([tmp_path / "gone.cc"], folder=tmp_path)


def test_build_into_a_folder_that_cannot_be(tmp_path):
    source = tmp_path / "a.cc"
    source.write_text(ADD)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ToolchainError, match="cannot be written") as caught:
        toolchain.build_extension([source], folder=blocked)
    assert caught.value.fix.startswith(f"Make {blocked} writable, or set TVMLAB_CACHE")
    assert "TVMLAB_CACHE" in caught.value.fix


def test_load_errors(tmp_path, built):
    with pytest.raises(ToolchainError, match="no such library"):
        toolchain.load_extension(tmp_path / "gone.so")
    damaged = tmp_path / "damaged.so"
    whole = built[2].read_bytes()
    for content in (b"", b"no library", whole[:40], whole[:1000], whole[:-1]):
        damaged.write_bytes(content)
        with pytest.raises(ToolchainError, match="cannot be loaded"):
            toolchain.load_extension(damaged)


def archive(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for name in members:
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"hi"))
    return path


def test_source_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(ToolchainError, match="not here") as caught:
        toolchain.tvm_ffi_source()
    assert "make setup" in caught.value.fix
    path = tmp_path / "share/tvmlab" / toolchain.FFI_SOURCE
    path.parent.mkdir(parents=True)
    archive(path, "top/file")
    with pytest.raises(ToolchainError, match="not the file that it should be"):
        toolchain.tvm_ffi_source()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(toolchain, "FFI_SHA256", digest)
    assert toolchain.tvm_ffi_source() == path


def test_source_package_is_the_one_that_set_up_fetches():
    pin = (Path(__file__).parents[1] / "scripts/tvm-ffi-source.txt").read_text()
    assert toolchain.FFI_SHA256 in pin
    version = toolchain.FFI_SOURCE.removeprefix("apache_tvm_ffi-").removesuffix(".tar.gz")
    assert f"apache-tvm-ffi=={version} " in pin


def test_unpack(tmp_path):
    top = toolchain.unpack(archive(tmp_path / "a.tar.gz", "top/x", "top/y/z"), tmp_path)
    assert top == tmp_path / "top"
    assert (top / "y/z").read_text() == "hi"


@pytest.mark.parametrize("member", ["../evil", "top/../../evil", "/abs"])
def test_unpack_never_leaves_the_folder(tmp_path, member):
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ToolchainError):
        toolchain.unpack(archive(tmp_path / "a.tar.gz", "top/x", member), inside)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("filtered", [True, False])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_unpack_refuses_what_is_not_a_file_by_every_python(tmp_path, monkeypatch, kind, filtered):
    if not filtered:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    path = archive(tmp_path / "a.tar", "top/x")
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("top/odd")
        info.type, info.linkname = kind, "../../etc"
        tar.addfile(info)
    with pytest.raises(ToolchainError, match="'top/odd' is refused"):
        toolchain.unpack(path, tmp_path / "out")


def test_unpack_by_a_python_before_3_11_4(tmp_path, monkeypatch):
    """Debian 12's Python has no filters: they must not be asked for."""

    def extractall(self, path=".", members=None):
        seen.append([member.name for member in members])

    seen = []
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    toolchain.unpack(archive(tmp_path / "a.tar.gz", "top/x"), tmp_path)
    assert seen == [["top/x"]]


def test_unpack_refuses_damaged_and_odd_archives(tmp_path):
    good = archive(tmp_path / "good.tar.gz", *[f"top/{i}" for i in range(50)])
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(good.read_bytes()[:-40])
    empty = archive(tmp_path / "empty.tar.gz")
    text = tmp_path / "text.tar.gz"
    text.write_text("no archive")
    for path in (cut, empty, text, archive(tmp_path / "two.tar.gz", "a/x", "b/x")):
        with pytest.raises(ToolchainError):
            toolchain.unpack(path, tmp_path / "out")


def test_machine_report():
    report = toolchain.machine()
    assert report.cores >= 1
    assert report.memory is None or report.memory > 2**26
    assert report.packages["apache-tvm"] == "0.27.0.post1"
    assert set(report.tools) == {"g++", "make", "cmake", "ninja"}
    text = str(report)
    assert (
        len(
            {
                line.index(value)
                for line, (_, value) in zip(text.splitlines(), report.rows(), strict=True)
            }
        )
        == 1
    )
    assert f"{report.cores} core" in text


def test_machine_report_says_what_is_missing(own_path, monkeypatch):
    script(own_path / "cmake", "echo cmake version 3.20.0")
    assert _machine._tool("cmake", (3, 26)).startswith("cmake is too old: 3.26 is needed. Install")
    assert _machine._tool("ninja", ()).startswith("ninja is not installed. Install it")
    assert _machine._package("no-such-package") == "not installed"
    report = _machine.Machine("s", "c", 1, None, 2**30, (), {}, {})
    assert dict(report.rows())["memory"] == "unknown"
    assert dict(report.rows())["processor"] == "c, 1 core"
    assert "none" in dict(report.rows())["GPU"]
