"""A notebook that cannot run here is skipped by name, and the run ends with the list of skips."""

from __future__ import annotations

import ast
import datetime
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from helpers_short import long
from nbformat import NotebookNode
from notebook_form import NEEDS, dumps, missing_needs, missing_tools
from notebook_rules import ROOT, packages
from notebook_runs import run_nbval
from notebook_samples import code, good, stream

from notebooks import main
from tvmlab import lab_tools
from tvmlab.errors import ToolchainError


def written(folder: Path, notebook: NotebookNode) -> Path:
    path = folder / "01_count_to_three.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    return path


def needing(folder: Path, *needs: str) -> Path:
    notebook = good()
    own = "import os\nprint('ipython-' in os.environ['IPYTHONDIR'])"
    notebook.cells.append(code("own-folder", own, stream("True\n")))
    notebook.metadata.tvmlab.needs = list(needs)
    return written(folder, notebook)


def test_nbval_skips_what_the_machine_lacks_and_says_so(tmp_path: Path) -> None:
    path = needing(tmp_path, "g++")
    paths = f"{ROOT / 'tests' / 'offline'}:{ROOT}"
    cells, text = run_nbval(path, "-p", "conftest", PATH=str(tmp_path), PYTHONPATH=paths)
    assert len(cells) == 9
    assert all("needs g++: not on this machine" in said for said in cells.values()), cells
    assert "skip ledger" in text
    assert "   9 x 01_count_to_three.ipynb needs g++: not on this machine" in text


def test_the_script_skips_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = needing(tmp_path, "here", "some thing")
    monkeypatch.setitem(NEEDS, "here", lambda: True)
    monkeypatch.setitem(NEEDS, "some thing", lambda: False)
    before = path.read_bytes()
    assert main([str(path)]) == 0
    assert "skipped, this machine lacks some thing" in capsys.readouterr().out
    assert path.read_bytes() == before


def asking(folder: Path, *tools: str) -> Path:
    notebook = good()
    cell = code("asks", "print('it is used')", stream("it is used\n"))
    cell.metadata.tags = [f"needs-{tool}" for tool in tools]
    notebook.cells.append(cell)
    return written(folder, notebook)


def test_nbval_skips_the_cells_whose_tool_is_missing_and_no_other(tmp_path: Path) -> None:
    path = asking(tmp_path, "pahole")
    paths = f"{ROOT / 'tests' / 'offline'}:{ROOT}"
    cells, text = run_nbval(path, "-p", "conftest", PATH=str(tmp_path), PYTHONPATH=paths)
    *others, asks = cells.values()
    assert set(others) == {""}, text
    assert "pahole is not on this machine: `make lab-tools` (Debian's dwarves)" in asks
    assert "   1 x 01_count_to_three.ipynb: pahole is not on this machine" in text


def test_the_script_writes_nothing_where_a_tool_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = asking(tmp_path, "pahole")
    monkeypatch.setattr("tvmlab.lab_tools.missing", lambda tool: f"no {tool}")
    before = path.read_bytes()
    assert main([str(path)]) == 0
    assert "skipped, no pahole" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_misspelt_need_skips_nothing() -> None:
    notebook = good()
    notebook.metadata.tvmlab.needs = ["gpp"]
    assert missing_needs(notebook) == []
    assert missing_needs(nbformat.v4.new_notebook()) == []
    cell = code("asks", "1")
    cell.metadata.tags = ["needs-pahol"]
    assert missing_tools(cell) == []


def test_a_need_is_what_requirements_do_not_bring() -> None:
    assert {"torch", "cmake", "scikit-learn"} <= packages()
    assert not packages() & set(NEEDS)


def test_a_program_is_looked_for_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "make").write_text("#!/bin/sh\n")
    (tmp_path / "make").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert NEEDS["make"]()
    assert not NEEDS["g++"]()


def test_without_a_skip_the_ledger_says_so_and_cells_compare(tmp_path: Path) -> None:
    path = needing(tmp_path)
    paths = f"{ROOT / 'tests' / 'offline'}:{ROOT}"
    cells, text = run_nbval(path, "-p", "conftest", PYTHONPATH=paths)
    assert set(cells.values()) == {""}, text  # Also: kernels have an IPython folder of their own.
    assert "nothing was skipped" in text


SEVERAL = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_skipped(number):
    pytest.skip("no such thing here")

@pytest.mark.xfail(reason="not yet", strict=True)
def test_expected():
    assert False

def test_failing():
    answer = {"a": 1}
    assert answer == {"a": 2}
"""


@long
def test_several_processes_end_with_one_ledger_and_say_what_failed(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(SEVERAL)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "conftest"]
    # The one that runs this test, if it is one of several, is not the one that is run.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}", tmp_path],
        cwd=tmp_path,
        env=kept
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        | {"PYTEST_PLUGINS": "xdist.plugin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout
    assert said.count("skip ledger") == 1, said + done.stderr
    assert "   6 x no such thing here" in said
    assert "not in tests/skips.toml, so the run fails: no such thing here" in said
    assert "   2 x expected to fail: not yet" in said
    assert "2 failed, 6 skipped, 2 xfailed" in said
    for name in ("test_a.py", "test_b.py"):
        assert f"{name}:14: AssertionError" in said
    assert "[gw0]" in said
    assert "assert {'a': 1} == {'a': 2}" in said


@pytest.mark.parametrize(
    ("reason", "code"), [("zsh: not on this machine", 0), ("zsh: I did not like it", 1)]
)
def test_a_skip_that_nobody_entered_fails_the_run(tmp_path: Path, reason: str, code: int) -> None:
    (tmp_path / "test_a.py").write_text(
        f"import pytest\n\ndef test_a():\n    pytest.skip({reason!r})\n\ndef test_b(): pass\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}", tmp_path],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    assert f"   1 x {reason}" in done.stdout
    assert ("so the run fails" in done.stdout) == bool(code)


ENTRIES = tomllib.loads((ROOT / "tests" / "skips.toml").read_text(encoding="utf-8"))["skip"]
PATTERNS = [pattern for entry in ENTRIES for pattern in entry["reasons"]]


def test_the_ledger_says_why_since_when_and_what_brings_each_back() -> None:
    for entry in ENTRIES:
        assert set(entry) == {"reasons", "why", "back", "since"}
        assert all(entry.values())
        assert datetime.date(2026, 11, 20) <= entry["since"] <= datetime.date.today()


def written_out(tree: ast.Module) -> Iterator[str]:
    """Yield the reasons for skips that a file writes out, an x where a value is filled in."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        given = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
        given += call.args[:1] if name in ("skip", "absent") else []
        if name not in ("skip", "skipif", "importorskip", "absent"):
            continue
        for value in given:
            if isinstance(value, ast.Constant) and " " in str(value.value):
                yield str(value.value)
            elif isinstance(value, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "x" for p in value.values)
                yield "".join(map(str, parts))


def put_together(config: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the reasons that `conftest.py` and `lab_tools` find when they look at a machine."""
    ours = config.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    monkeypatch.setattr(lab_tools, "missing", lab_tools.missing.__wrapped__)  # not what it kept

    def skipped(needs: list[str], *tools: str) -> Iterator[str]:
        notebook = good()
        notebook.metadata.tvmlab.needs = needs
        cell = code("asks", "1", tags=tuple(f"needs-{tool}" for tool in tools))
        marks: list[pytest.MarkDecorator] = []
        parent = SimpleNamespace(nb=notebook, path=Path("01_count.ipynb"))
        item = SimpleNamespace(parent=parent, cell=cell, add_marker=marks.append)
        ours.pytest_collection_modifyitems([item])
        return (mark.kwargs["reason"] for mark in marks)

    def nowhere(tool: str) -> None:
        raise ToolchainError(f"no {tool}", where="here", fix="none")

    monkeypatch.setenv("PATH", "")
    yield from skipped(list(NEEDS))
    monkeypatch.setattr(lab_tools, "find_tool", nowhere)
    yield from (reason for tool in lab_tools.PACKAGES for reason in skipped([], tool))
    yield from skipped([], *lab_tools.PACKAGES)
    yield from (str(lab_tools.missing(tool)) for tool in ("clang-format", "clang-tidy"))
    monkeypatch.setattr(lab_tools, "find_tool", lambda _: SimpleNamespace(path="/bin/false"))
    yield from skipped([], *lab_tools.PACKAGES)


def test_every_reason_is_known_once_and_no_pattern_has_outlived_its_reasons(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine other tests are skipped: what their lines say is looked at as well."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name]
    found = {each for path in files for each in written_out(ast.parse(path.read_text("utf-8")))}
    found |= set(put_together(request.config, monkeypatch))
    assert len(found) > 30
    known = {reason: [p for p in PATTERNS if re.fullmatch(p, reason)] for reason in sorted(found)}
    assert {reason: by for reason, by in known.items() if len(by) != 1} == {}
    assert set(PATTERNS) - {by for each in known.values() for by in each} == set()


BROWSER = "def test_a(chromium): pass"
DATA = "from helpers_short import beside\n\ndef test_a(): beside('no such file')"


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("test", "lacking", "told"),
    [
        (BROWSER, "chromium", "chromium: not on this machine (Debian: apt install chromium)"),
        (BROWSER, "playwright", "playwright is not installed: make setup"),
        (DATA, "data", "../shared/no such file is not here: tests/README.md says what it holds"),
    ],
)
def test_a_browser_and_data_may_be_missing_in_the_short_form_alone(
    tmp_path: Path, test: str, lacking: str, told: str, full: bool
) -> None:
    (tmp_path / "test_a.py").write_text(f"{test}\n\ndef test_b(): pass\n")
    if lacking == "playwright":
        (tmp_path / "playwright.py").touch()  # a module without what is imported from it
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TVMLAB_TEST"))}
    paths = os.pathsep.join(map(str, (tmp_path, ROOT / "tests" / "browser", ROOT / "tests")))
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", "/dev/null", f"--rootdir={tmp_path}", tmp_path],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": paths, "PATH": ""} | ({"TVMLAB_TEST_ALL": "1"} if full else {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told in done.stdout
    missed = ("1 error" if test == BROWSER else "1 failed") if full else "1 skipped"
    assert re.search(f"1 passed, {missed}|{missed}, 1 passed", done.stdout)
