"""Execute the notebooks and write them in a canonical form.

    python scripts/notebooks.py                     # all notebooks in notebooks/
    python scripts/notebooks.py notebooks/02_*.ipynb
    python scripts/notebooks.py --no-run            # only the canonical form and the translations

Every notebook runs in a fresh kernel, in its own folder, without network access (tests/offline).
The script writes all outputs of a notebook, so that they come from the same run. If a cell raises
an error, the notebook's file stays unchanged. The script copies code, outputs and metadata from the
English notebook to its translation in notebooks/zh, and keeps the translation's prose.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
TRANSLATIONS = NOTEBOOKS / "zh"
CELL_TIMEOUT = 900  # seconds
TOOL_TAG = "needs-"  # prefix of the tags of cells that use a tool of `make lab-tools`
# The Debian package of each tool of `make lab-tools`.
LAB_TOOLS = dict(
    line.split()[:2]
    for line in (ROOT / "tvmlab/assets/lab-tools.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
# Commands that fail if the kernel forbids tracing processes, as in many containers.
TRIALS = {
    "perf": ("record", "--quiet", "--event=cpu-clock", "--output=/dev/null", "true"),
    "strace": ("-o", "/dev/null", "true"),
    "ltrace": ("-o", "/dev/null", "true"),
}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
# Without the Python version, because the same notebook runs on several.
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


def missing_needs(notebook: NotebookNode) -> list[str]:
    """Return the programs in the metadata's `needs` that this machine lacks."""
    needs = notebook.metadata.get("tvmlab", {}).get("needs", [])
    return [name for name in needs if shutil.which(name) is None]


def missing_tools(cell: NotebookNode) -> list[str]:
    """Return the reason for each tool in a cell's tags that this machine cannot run."""
    tags = cell.metadata.get("tags", [])
    tools = [tag.removeprefix(TOOL_TAG) for tag in tags if tag.startswith(TOOL_TAG)]
    return [reason for tool in tools if (reason := missing_tool(tool)) is not None]


@functools.cache
def missing_tool(tool: str) -> str | None:
    """Return why a tool of `make lab-tools` does not work, or None if it does."""
    if shutil.which(tool) is None:
        return f"{tool} is not on this machine: `make lab-tools` (Debian's {LAB_TOOLS[tool]})"
    trial = TRIALS.get(tool)
    if trial and subprocess.run([tool, *trial], capture_output=True, timeout=30).returncode:
        return f"{tool} is on this machine, but the kernel does not let it look at processes"
    return None


def canonical(notebook: NotebookNode) -> NotebookNode:
    """Return a copy in the canonical form, without data that vary from run to run.

    The copy keeps the sources, ids, tags and outputs of the cells and the metadata under `tvmlab`.
    Execution counts run from 1 in the order of the code cells.
    """
    metadata = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}
    if "tvmlab" in notebook.metadata:
        metadata["tvmlab"] = notebook.metadata.tvmlab
    cells = copy.deepcopy(notebook.cells)
    count = 0
    for cell in cells:
        tags = sorted(set(cell.metadata.get("tags", [])))
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cell.source = "\n".join(line.rstrip() for line in cell.source.strip("\n").split("\n"))
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = _canonical_outputs(cell.outputs, count)
    result = nbformat.v4.new_notebook(metadata=nbformat.from_dict(metadata), cells=cells)
    result.nbformat_minor = 5
    return result


def _canonical_outputs(outputs: Sequence[NotebookNode], count: int) -> list[NotebookNode]:
    """Join adjacent chunks of a stream, because timing decides where a stream is cut."""
    result: list[NotebookNode] = []
    for output in outputs:
        output.pop("transient", None)
        last = result[-1] if result else None
        if last is not None and output.get("name") and last.get("name") == output.name:
            last.text += output.text
            continue
        if output.output_type == "execute_result":
            output.execution_count = count
        elif output.output_type == "error":
            # The frames contain paths and line numbers of this machine's packages.
            output.traceback = [f"{output.ename}: {output.evalue}"]
        result.append(output)
    return result


def dumps(notebook: NotebookNode) -> str:
    """Return the canonical text of a notebook's file."""
    text: str = nbformat.writes(
        canonical(notebook), version=4, indent=1, sort_keys=True, ensure_ascii=False
    )
    return text.rstrip("\n") + "\n"


def load(path: Path) -> NotebookNode:
    """Read a notebook."""
    return nbformat.read(path, as_version=4)


def translated(english: NotebookNode, chinese: NotebookNode) -> NotebookNode:
    """Return the English notebook with the prose of its translation.

    A cell without a translation stays English. Links in outputs change, because the translation's
    folder is one level deeper.
    """
    prose = {cell.id: cell for cell in chinese.cells if cell.cell_type == "markdown"}
    result = copy.deepcopy(english)
    result.cells = [prose.get(cell.id, cell) for cell in result.cells]
    for cell in result.cells:
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                data = output.data
                data["text/markdown"] = LINK.sub(_from_translation, data["text/markdown"])
    return result


def _from_translation(link: re.Match[str]) -> str:
    """Return a link of an English notebook as seen from the translations' folder."""
    return link[0] if (TRANSLATIONS / link[0]).is_file() else f"../{link[0]}"


def offline_environment(profile: str | None = None) -> dict[str, str]:
    """Return this process's environment, without network access for Python processes.

    Parameters
    ----------
    profile : str, optional
        A folder that replaces the user's IPython folder, whose start-up files could change outputs.
    """
    paths = [str(ROOT / "tests" / "offline"), os.environ.get("PYTHONPATH", "")]
    changes = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return os.environ | changes | ({"IPYTHONDIR": profile} if profile else {})


def execute(notebook: NotebookNode, folder: Path, *, timeout: int = CELL_TIMEOUT) -> None:
    """Run all code cells of `notebook` in a fresh kernel and store their outputs in it.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell raised.
    nbclient.exceptions.CellTimeoutError
        A cell took longer than `timeout` seconds.
    nbclient.exceptions.DeadKernelError
        The kernel died.
    """
    # The import is slow, and every test process imports this file.
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    with tempfile.TemporaryDirectory(prefix="notebooks-") as profile:
        client.execute(env=offline_environment(profile))


def process(path: Path, *, run: bool) -> None:
    """Update a notebook or a translation, and write it if it has changed."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    if path.parent == TRANSLATIONS:
        notebook = translated(load(NOTEBOOKS / path.name), notebook)
    elif run:
        absent = missing_needs(notebook)
        absent += [reason for cell in notebook.cells for reason in missing_tools(cell)]
        if absent:
            print(f"{path}: skipped, this machine lacks: {', '.join(absent)}")
            return
        execute(notebook, path.parent)
    after = dumps(notebook)
    if after != before:
        path.write_text(after, encoding="utf-8", newline="\n")
    print(f"{path}: {'unchanged' if after == before else 'written'}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Process the notebooks and their translations; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (default: all)")
    parser.add_argument("--no-run", action="store_true", help="do not execute the cells")
    options = parser.parse_args(arguments)
    chosen = [path.resolve() for path in options.paths] or sorted(NOTEBOOKS.glob("*.ipynb"))
    copies = [TRANSLATIONS / path.name for path in chosen if path.parent == NOTEBOOKS]
    failed = 0
    for path in [*chosen, *(path for path in copies if path.is_file())]:
        try:
            process(path, run=not options.no_run)
        except Exception as error:  # Continue with the other notebooks.
            failed += 1
            print(f"{path}: failed and left as it is\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
