"""A small notebook that keeps every rule, for tests that break it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_form import IGNORED, canonical, dumps
from notebook_rules import Page

# The smallest PNG there is: one pixel.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ALT = "One grey pixel stands in for a figure."
TITLES = {"00_begin_here.ipynb": "Begin here", "01_count_to_three.ipynb": "Count to three"}
LINE = "[← 00 Begin here](00_begin_here.ipynb)"


def markdown(name: str, source: str) -> NotebookNode:
    return new_markdown_cell(source, id=name)


def code(name: str, source: str, *outputs: NotebookNode, tags: tuple[str, ...] = ()) -> Any:
    metadata = {"tags": list(tags)} if tags else {}
    return new_code_cell(source, id=name, metadata=metadata, outputs=list(outputs))


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def result(text: str) -> NotebookNode:
    return new_output("execute_result", data={"text/plain": text}, execution_count=1)


def figure(alt: str = ALT) -> NotebookNode:
    return new_output(
        "display_data",
        data={"image/png": PNG, "text/plain": alt},
        metadata={"image/png": {"alt": alt}},
    )


SHOW_FIGURE = f"""\
from IPython.display import display

PNG = "{PNG}"
ALT = "{ALT}"
data = {{"image/png": PNG, "text/plain": ALT}}
display(data, metadata={{"image/png": {{"alt": ALT}}}}, raw=True)"""


def good() -> NotebookNode:
    """Return a notebook that keeps every rule and whose outputs are what its code prints."""
    return canonical(_sample())


def _sample() -> NotebookNode:
    notebook = new_notebook()
    notebook.metadata["tvmlab"] = nbformat.from_dict(
        {
            "title": "Count to three",
            "minutes": 1,
            "level": "beginner",
            "needs": [],
            "summary": "count aloud and stop at three",
        }
    )
    notebook.cells = [
        markdown("title", f"# Count to three\n\nWe count.\n\n{LINE}"),
        markdown("what", "## What you'll do\n\nCount.\n\n## What you'll learn\n\n- Count"),
        markdown("need", "## What you'll need\n\n- [Numbers](https://example.org/numbers)"),
        markdown("steps", "## Count aloud\n\n### With print\n\nSee [the end](#In-practice)."),
        code("count", "for n in (1, 2, 3):  # Each number.\n    print(n)", stream("1\n2\n3\n")),
        code("pair", "print('first 10')\n(1, 3, 224)", stream("first 10\n"), result("(1, 3, 224)")),
        code(
            "clock",
            "import time\n\nprint(f'{time.perf_counter():.3f} s')",
            stream("1.234 s\n"),
            tags=(IGNORED,),
        ),
        code("clock-runs", "print('it ticks')", stream("it ticks\n")),
        code("figure", SHOW_FIGURE, figure()),
        code(
            "fails",
            "1 / 0",
            new_output(
                "error",
                ename="ZeroDivisionError",
                evalue="division by zero",
                traceback=["ZeroDivisionError: division by zero"],
            ),
            tags=("raises-exception",),
        ),
        markdown("own", "## On your own"),
        code("exercise-four", "print('not yet: count to 4')", stream("not yet: count to 4\n")),
        code("exercise-five", "print('not yet: count to 5')", stream("not yet: count to 5\n")),
        markdown("practice", "## In practice\n\nPeople count."),
        markdown("reading", f"## Further reading\n\n- [Numbers](https://example.org)\n\n{LINE}"),
    ]
    return notebook


def page(notebook: NotebookNode, folder: Path, text: str | None = None) -> Page:
    """Write the notebook and its neighbour into `folder` and return its page."""
    (folder / "00_begin_here.ipynb").write_text(dumps(new_notebook()), encoding="utf-8")
    path = folder / "01_count_to_three.ipynb"
    text = dumps(notebook) if text is None else text
    path.write_text(text, encoding="utf-8")
    return Page(path, text, TITLES, root=folder)
