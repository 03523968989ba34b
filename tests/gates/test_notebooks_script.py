"""`scripts/notebooks.py`: what it writes, and when it keeps its hands off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from notebook_contents import CONTENTS, stale
from notebook_form import IGNORED, NotebookError, canonical, dumps, load
from notebook_samples import code, figure, good, markdown, result, stream

import notebooks
from notebooks import changes, find, main, write

# The canonical form.


def test_canonical_form_is_a_fixed_point() -> None:
    text = dumps(good())
    assert dumps(nbformat.reads(text, as_version=4)) == text
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_what_one_run_leaves_behind_is_dropped() -> None:
    notebook = good()
    clean = dumps(notebook)
    notebook.metadata["widgets"] = {"state": {}}
    notebook.metadata["kernelspec"] = {"name": "venv", "display_name": "mine"}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    for count, cell in enumerate(notebook.cells):
        cell.metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
        cell.metadata["collapsed"] = False
        if cell.cell_type == "code":
            cell.execution_count = 40 + count
            cell.source += "  \n"
    notebook.cells[5].outputs[-1].execution_count = 99
    fails = next(cell for cell in notebook.cells if cell.id == "fails")
    fails.outputs[0].traceback = ["\x1b[31m", "File /home/me/x.py", "ZeroDivisionError"]
    assert dumps(notebook) == clean


def test_neighbouring_chunks_of_a_stream_are_one() -> None:
    notebook = new_notebook()
    notebook.cells = [
        code("a", "", stream("1"), stream("2\n"), stream("!", "stderr"), stream("3"), result("4"),
             stream("5"))
    ]  # fmt: skip
    texts = [output.get("text") for output in canonical(notebook).cells[0].outputs]
    assert texts == ["12\n", "!", "3", None, "5"]
    assert len(notebook.cells[0].outputs) == 6, "the argument is left alone"


def test_canonical_keeps_ids_tags_and_alt_text() -> None:
    before, after = good(), canonical(good())
    assert [cell.id for cell in after.cells] == [cell.id for cell in before.cells]
    assert [c.metadata.get("tags") for c in after.cells] == [
        c.metadata.get("tags") for c in before.cells
    ]
    figures = [c.outputs[0] for c in after.cells if c.id == "figure"]
    assert figures == [figure()]


# Files.


def cell(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(each for each in notebook.cells if each.id == name)


def test_write_replaces_whole_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text("old")
    path.chmod(0o640)
    write(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(UnicodeEncodeError):
        write(path, "half \ud800")
    assert path.read_bytes() == b"new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["a.ipynb"]


def test_find_takes_files_and_folders(tmp_path: Path) -> None:
    for name in (
        "00_start_here.ipynb",
        "b.ipynb",
        "solutions/c.ipynb",
        ".ipynb_checkpoints/b.ipynb",
        "build/d.ipynb",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = find([str(tmp_path), str(tmp_path / "b.ipynb")])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [
        "00_start_here.ipynb",
        "b.ipynb",
        "solutions/c.ipynb",
    ]
    with pytest.raises(NotebookError, match="no such file"):
        find([str(tmp_path / "e.ipynb")])


@pytest.mark.parametrize("text", ["", "{}", '{"cells": 3, "nbformat": 4}', "\x00"])
def test_what_is_no_notebook_is_refused_by_name(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.ipynb"
    path.write_text(text)
    with pytest.raises(NotebookError, match=r"bad\.ipynb: not a notebook"):
        load(path)
    assert main([str(path)]) == 1
    assert "bad.ipynb" in capsys.readouterr().err
    assert path.read_text() == text


def test_changes_are_short() -> None:
    text = changes("a\n" * 500, "b\n" + "c" * 1000 + "\n", Path("x"))
    assert len(text.splitlines()) == 41
    assert max(len(line) for line in text.splitlines()) <= 160


# The command, with real kernels.


def put(folder: Path, *cells: NotebookNode) -> Path:
    notebook = new_notebook()
    notebook.cells = list(cells)
    path = folder / "x.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def test_check_then_write_then_all_outputs_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(
        tmp_path,
        markdown("title", "# Count"),
        code("a", "import os, sys\nprint(1)\nsys.stdout.flush()\nprint(os.getcwd())\n2 "),
        code("b", "import time\nprint(time.perf_counter())", tags=(IGNORED,)),
        code("c", "1 / 0", tags=("raises-exception",)),
        code("d", "print(sys.executable)"),
    )
    before = path.read_bytes()
    assert main(["--check", str(path)]) == 1
    assert "would change" in capsys.readouterr().out
    assert path.read_bytes() == before

    assert main([str(path)]) == 0
    written = path.read_bytes()
    notebook = load(path)
    assert dumps(notebook).encode() == written
    count, clock, error, kernel = (c.outputs for c in notebook.cells[1:])
    assert [c.execution_count for c in notebook.cells[1:]] == [1, 2, 3, 4]
    assert count[0].text == f"1\n{tmp_path}\n"
    assert count[1].data == {"text/plain": "2"}
    assert error[0].traceback == ["ZeroDivisionError: division by zero"]
    assert kernel[0].text.strip() == notebooks.sys.executable

    assert main(["--no-run", "--check", str(path)]) == 0
    assert main(["--no-run", str(path)]) == 0
    assert path.read_bytes() == written
    assert main([str(path)]) == 0
    assert load(path).cells[2].outputs != clock
    assert load(path).cells[1].outputs == count
    assert [each.name for each in tmp_path.iterdir()] == ["x.ipynb"]


def test_the_table_of_contents_is_run_as_well_where_it_is_not_theirs_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents, first, new = (
        tmp_path / name for name in (CONTENTS, "01_build_tvm.ipynb", "02_new.ipynb")
    )
    about = {"title": "A", "summary": "do this", "level": "beginner", "minutes": 1, "needs": []}

    def put(path: Path, cell: NotebookNode, **other: object) -> None:
        notebook = new_notebook(cells=[cell], metadata={"tvmlab": about | other})
        path.write_text(dumps(notebook), encoding="utf-8")

    put(contents, cell(load(notebooks.NOTEBOOKS / CONTENTS), "table"))
    put(first, code("a", "1"))
    assert main([str(contents), str(first)]) == 0
    assert stale(contents) == []
    assert "2 notebooks" in capsys.readouterr().out
    assert main([str(first)]) == 0
    assert "1 notebooks" in capsys.readouterr().out  # The table is theirs.

    for other in ({"title": "B"}, {"needs": ["make"]}):  # It is new, and then another.
        put(new, code("a", "1"), **other)
        assert stale(contents) == [new.name]
        assert main([str(new)]) == 0
        assert "2 notebooks" in capsys.readouterr().out
        assert stale(contents) == []
    new.unlink()
    assert stale(contents) == ["02"]
    first.write_text("{")
    assert stale(contents) == [first.name, "02"]


def test_what_is_saved_meanwhile_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path, code("save", "open('x.ipynb', 'a').write(' ')"))
    text = path.read_text()
    assert main([str(path)]) == 1
    assert "somebody saved the file" in capsys.readouterr().err
    assert path.read_text() == text + " "


def die(monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    return code("bad", "import os\nos._exit(3)")


def hang(monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    monkeypatch.setattr(notebooks.execute, "__kwdefaults__", {"timeout": 1})
    return code("bad", "import time\ntime.sleep(60)")


def fail(monkeypatch: pytest.MonkeyPatch) -> NotebookNode:
    return code("bad", "raise ValueError('two is not one')")


@pytest.mark.parametrize(
    ("cause", "part"), [(fail, "two is not one"), (hang, "still running"), (die, "kernel died")]
)
def test_a_failing_notebook_is_left_as_it_is(
    cause: Callable[[pytest.MonkeyPatch], NotebookNode],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = put(tmp_path, code("good", "print(1)"), cause(monkeypatch))
    before = path.read_bytes()
    assert main([str(path)]) == 1
    said = capsys.readouterr()
    assert "x.ipynb: FAILED, left as it is\ncell bad: " in said.err
    assert part in said.err
    assert "\x1b" not in said.err
    assert "1 notebooks, 0 changed, 1 failed" in said.out
    assert path.read_bytes() == before


def test_a_missing_path_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.ipynb"]) == 2
    assert "nowhere.ipynb" in capsys.readouterr().err
