"""`scripts/notebooks.py`: the canonical form, the execution, and when it writes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_notebook

import notebooks
from notebooks import canonical, dumps, load, main, translated
from tests.notebooks.checked import IGNORED, code, sample, stream, written


def test_the_form_leaves_out_everything_that_is_bound_to_one_run() -> None:
    notebook = sample()
    clean = dumps(notebook)
    assert dumps(nbformat.reads(clean, as_version=4)) == clean
    notebook.metadata["widgets"] = {"state": {}}
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    for count, cell in enumerate(notebook.cells):
        cell.metadata["collapsed"] = False
        if cell.cell_type == "code":
            cell.execution_count = 40 + count
            cell.source += "  \n"
        if cell.id == "fails":
            cell.outputs[0].traceback = ["\x1b[31m", "File /home/me/x.py", "ZeroDivisionError"]
    assert dumps(notebook) == clean
    chunks = (stream("1"), stream("2\n"), stream("!", "stderr"), stream("3"))
    outputs = canonical(new_notebook(cells=[code("a", "", *chunks)])).cells[0].outputs
    assert [output.text for output in outputs] == ["12\n", "!", "3"]


def test_all_outputs_are_made_anew(tmp_path: Path) -> None:
    notebook = new_notebook()
    notebook.cells = [
        code("place", "import os, sys\nprint(os.getcwd())\nprint(sys.executable)\n2"),
        code("clock", "import time\nprint(time.perf_counter())", tags=[IGNORED]),
        code("error", "1 / 0", tags=["raises-exception"]),
    ]
    path = written(tmp_path, notebook)
    assert main([str(path)]) == 0
    place, clock, error = (cell.outputs for cell in load(path).cells)
    assert place[0].text == f"{tmp_path}\n{sys.executable}\n"
    assert place[1].data == {"text/plain": "2"}
    assert error[0].traceback == ["ZeroDivisionError: division by zero"]
    text = path.read_text(encoding="utf-8")
    assert main(["--no-run", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text
    assert main([str(path)]) == 0
    assert load(path).cells[1].outputs != clock


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("raise ValueError('two is not one')", "two is not one"),
        ("import time\ntime.sleep(60)", "timed out"),
        ("import os\nos._exit(3)", "died"),
    ],
)
def test_a_notebook_that_fails_is_left_as_it_is(
    source: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(notebooks.execute, "__kwdefaults__", {"timeout": 10})
    path = written(tmp_path, new_notebook(cells=[code("good", "print(1)"), code("bad", source)]))
    before = path.read_bytes()
    assert main([str(path)]) == 1
    error = capsys.readouterr().err
    assert "01_count.ipynb: failed and left as it is" in error
    assert part in error
    assert path.read_bytes() == before


def test_a_translation_takes_everything_but_the_prose() -> None:
    english, chinese = sample(), sample()
    table = "[one](00_start_here.ipynb), [two](01_build_tvm.ipynb)"
    english.cells[1].outputs = [nbformat.v4.new_output("display_data", {"text/markdown": table})]
    english.cells.append(nbformat.v4.new_markdown_cell("New.", id="new"))
    chinese.cells[0].source = "# 数数"
    made = translated(english, chinese)
    assert [cell.id for cell in made.cells] == [cell.id for cell in english.cells]
    assert [made.cells[0].source, made.cells[-1].source] == ["# 数数", "New."]
    assert made.cells[1].outputs[0].data["text/markdown"] == table.replace("(01", "(../01")
