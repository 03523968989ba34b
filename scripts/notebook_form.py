"""The canonical form of a notebook, and what a notebook needs.

`scripts/notebooks.py` writes with it, the tests compare with it.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

IGNORED = "nbval-ignore-output"
TRANSLATED = ("zh",)  # Folders of notebooks/ that scripts/translations.py writes.
TRANSLATES = "translates"  # In a translated cell's metadata: the English text that it says.
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)  # A block of code in Markdown.

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
# Without the Python version: the same notebook runs on several.
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


class NotebookError(Exception):
    """A notebook cannot be read or executed; says which, where and why."""


# What a notebook may name in its metadata under `needs`, and how to tell whether it is there: only
# what `make setup` does not install. All of requirements.txt is in the environment, or it is broken
# and no reason to skip.


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


NEEDS: dict[str, Callable[[], bool]] = {name: _program(name) for name in ("g++", "make")}


def missing_needs(notebook: NotebookNode) -> list[str]:
    """Return what the notebook's metadata asks for and this machine lacks.

    A name that is not in `NEEDS` does not count as missing: the structure test refuses it, and a
    misspelt need must not skip a notebook in silence.
    """
    needs = notebook.metadata.get("tvmlab", {}).get("needs", [])
    return [name for name in needs if name in NEEDS and not NEEDS[name]()]


# A cell that uses a tool of `tvmlab.lab_tools` carries a tag for each: it alone is skipped.
TOOL_TAG = "needs-"


def tools_of(cell: NotebookNode) -> list[str]:
    """Return the tools that a cell's tags name."""
    tags = sorted(cell.metadata.get("tags", []))
    return [tag.removeprefix(TOOL_TAG) for tag in tags if tag.startswith(TOOL_TAG)]


def missing_tools(cell: NotebookNode) -> list[str]:
    """Return, for each tool of a cell that cannot be used here, what to do about it.

    A name that `tvmlab.lab_tools` does not know counts as little as a misspelt need: the structure
    test refuses it.
    """
    tools = tools_of(cell)
    if not tools:
        return []
    from tvmlab import lab_tools  # Here: who reads notebooks without tools needs no package.

    known = [tool for tool in tools if tool in lab_tools.PACKAGES]
    return [reason for tool in known if (reason := lab_tools.missing(tool)) is not None]


# The canonical form.


def canonical(notebook: NotebookNode) -> NotebookNode:
    """Return a copy that holds only what belongs in the repository, in one form.

    Kept are the sources, ids and tags of cells, the outputs without what is bound to one run, the
    marks of the text that a translation says, and the metadata under `tvmlab`.
    Execution counts run from 1 in the order of the code cells.
    """
    result = nbformat.v4.new_notebook()
    result.nbformat_minor = 5
    result.metadata = nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}
        | ({"tvmlab": notebook.metadata.tvmlab} if "tvmlab" in notebook.metadata else {})
    )
    result.cells = [copy.deepcopy(cell) for cell in notebook.cells]
    count = 0
    for cell in result.cells:
        tags = sorted(set(cell.metadata.get("tags", [])))
        mark = cell.metadata.get(TRANSLATES) if cell.cell_type == "markdown" else None
        kept = ({"tags": tags} if tags else {}) | ({TRANSLATES: mark} if mark else {})
        cell.metadata = nbformat.from_dict(kept)
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip("\n").split("\n"))
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = _canonical_outputs(cell.outputs, count)
    return result


def _canonical_outputs(outputs: Sequence[NotebookNode], count: int) -> list[NotebookNode]:
    """Join neighbouring chunks of one stream and drop what is bound to one run."""
    result: list[NotebookNode] = []
    for output in outputs:
        output = copy.deepcopy(output)
        output.pop("transient", None)
        kind = output.output_type
        if kind == "stream":
            last = result[-1] if result else None
            if last is not None and last.output_type == "stream" and last.name == output.name:
                last.text += output.text  # How a stream is cut depends on the clock.
                continue
        elif kind == "execute_result":
            output.execution_count = count
        elif kind == "error":
            # Frames carry paths and line numbers of this machine's packages.
            output.traceback = [f"{output.ename}: {output.evalue}"]
        result.append(output)
    return result


def dumps(notebook: NotebookNode) -> str:
    """Return the canonical text of the file, with its closing newline."""
    text: str = nbformat.writes(
        canonical(notebook), version=4, indent=1, sort_keys=True, ensure_ascii=False
    )
    return text.rstrip("\n") + "\n"


def load(path: Path) -> NotebookNode:
    """Read a notebook; raise `NotebookError` if it is not one."""
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise NotebookError(f"{path}: not a notebook: {error.message}") from error
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        # nbformat does not check what it reads before it works on it.
        raise NotebookError(f"{path}: not a notebook: {error}") from error
    return notebook
