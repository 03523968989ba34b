"""The table of contents that notebook 00 prints, beside the metadata that it is made from.

A notebook that is new, or that has other metadata, makes the committed table a stale one:
`scripts/notebooks.py` then executes 00 as well, and a gate holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from notebook_form import NotebookError, load

CONTENTS = "00_start_here.ipynb"  # Prints a table made from the metadata of all, its own too.
SHOWN = ("summary", "level", "minutes")


def stale(contents: Path) -> list[str]:
    """Return the names of the notebooks whose row in the committed table is another, or missing.

    Parameters
    ----------
    contents : Path
        The notebook with the table; the notebooks beside it are those that it lists. What it lists
        and is not there any more is named by its number.
    """
    shown = dict(_rows(contents))
    paths = sorted(contents.parent.glob("[0-9][0-9]_*.ipynb"))
    wrong = [path.name for path in paths if shown.pop(path.name[:2], None) != _row(path)]
    return [*wrong, *shown]


def _read(path: Path) -> NotebookNode:
    """Read a notebook; one that cannot be read counts as empty, and fails where it is executed."""
    try:
        return load(path)
    except NotebookError:
        return nbformat.v4.new_notebook()


def _rows(contents: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the number of each row of the table that the notebook shows, and its other columns."""
    for cell in _read(contents).cells:
        for output in cell.get("outputs", ()):
            text = output.get("data", {}).get("text/markdown", "")
            for row in re.findall(r"^\| (\d\d \|.*)\|$", text, re.MULTILINE):
                number, *columns = (column.strip() for column in row.split("|"))
                yield number, columns


def _row(path: Path) -> list[str]:
    """Return the columns that a notebook's own metadata makes."""
    about = _read(path).metadata.get("tvmlab", {})
    needs = ", ".join(about.get("needs", ())) or "nothing more"
    link = f"[{about.get('title')}]({path.name})"
    return [link, *(str(about.get(key)) for key in SHOWN), needs]
