"""Notebooks in the tests: reading them, running nbval on them, and making small ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from notebooks import CELL_TIMEOUT, NOTEBOOKS, ROOT, canonical, dumps, offline_environment

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
IGNORED = "nbval-ignore-output"
STRICT = (
    "--nbval",
    f"--nbval-sanitize-with={ROOT / 'tests' / 'sanitize.cfg'}",
    f"--nbval-cell-timeout={CELL_TIMEOUT}",
)


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def texts(cell: NotebookNode) -> Iterator[str]:
    """Yield every text under a code cell; pictures in any format are left out."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join([output.ename, output.evalue, *output.traceback])
        else:
            data = output.data.items()
            yield from (str(text) for mime, text in data if not mime.startswith("image/"))


# Small notebooks.


def code(name: str, source: str, *outputs: NotebookNode, tags: Sequence[str] = ()) -> NotebookNode:
    metadata = {"tags": list(tags)} if tags else {}
    return new_code_cell(source, id=name, metadata=metadata, outputs=list(outputs))


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def sample() -> NotebookNode:
    """Return a notebook whose outputs are what its code prints."""
    pair, clock = (
        new_output("execute_result", data={"text/plain": text}, execution_count=1)
        for text in ("(1, 224)", "0.5")
    )
    error = new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])
    notebook = new_notebook(metadata={"tvmlab": {"title": "Count", "minutes": 1, "needs": []}})
    notebook.cells = [
        new_markdown_cell("# Count", id="title"),
        code("count", "for n in (1, 2, 3):\n    print(n)", stream("1\n2\n3\n")),
        code("pair", "print('first 10')\n(1, 224)", stream("first 10\n"), pair),
        code("clock", "import time\ntime.time()", clock, tags=[IGNORED]),
        code("fails", "1 / 0", error, tags=["raises-exception"]),
        code("end", "print('end')", stream("end\n")),
    ]
    return canonical(notebook)


def written(folder: Path, notebook: NotebookNode) -> Path:
    """Write a notebook to a file and return its path."""
    path = folder / "01_count.ipynb"
    path.write_text(dumps(notebook), encoding="utf-8")
    return path


# nbval.


def copy_notebooks(folder: Path) -> Path:
    """Copy the folder of notebooks, because some read others; return the copy."""
    there = folder / NOTEBOOKS.name
    shutil.copytree(NOTEBOOKS, there, ignore=shutil.ignore_patterns(".*", "build"))
    return there


def run_nbval(
    path: Path, *options: str, before: Sequence[str] = (), **environment: str
) -> tuple[dict[str, str], str]:
    """Compare one notebook strictly, away from the repository's own pytest settings.

    Parameters
    ----------
    path : Path
        The notebook; the report is written beside it.
    options : str
        More options for pytest.
    before : sequence of str
        The beginning of the command line.
    environment : str
        Changes to the environment.

    Returns
    -------
    cells : dict of str to str
        For each code cell, by nbval's name: "" if it passed, else nbval's message.
    text : str
        The whole output of the run.
    """
    report = path.with_suffix(".xml")
    run = subprocess.run(
        [
            *before,
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", "/dev/null", f"--rootdir={path.parent}", f"--junitxml={report}"),
            *("-p", "nbval.plugin", *STRICT, "--nbval-current-env", *options, str(path)),
        ],
        cwd=path.parent,
        # Without the other plugins pytest starts in half the time.
        env=offline_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    text = run.stdout + run.stderr
    assert report.exists(), f"nbval wrote no report:\n{text}"
    cells = {}
    for case in ElementTree.parse(report).iter("testcase"):
        said = [f"{part.tag}: {part.get('message')}\n{part.text}" for part in case]
        cells[case.get("name", "")] = "".join(said)
    return cells, text
