"""Execute the notebooks and write them in one canonical form.

    python scripts/notebooks.py                     # all of notebooks/
    python scripts/notebooks.py notebooks/02_*.ipynb
    python scripts/notebooks.py --no-run            # only the canonical form
    python scripts/notebooks.py --no-run --check    # write nothing, exit 1 on any difference

Every notebook runs in a fresh kernel of this very interpreter, in its own folder, with the network
closed (`tests/offline`). All outputs of a notebook are written, so that they come from one run. A
notebook in which a cell raises is left as it is.

Notebook 00 shows a table of all: it is executed as well where that is not theirs any more.
"""

from __future__ import annotations

import argparse
import copy
import difflib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from notebook_contents import CONTENTS, stale
from notebook_form import (
    TRANSLATED,
    NotebookError,
    dumps,
    load,
    missing_needs,
    missing_tools,
)

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
OFFLINE = ROOT / "tests" / "offline"
CELL_TIMEOUT = 900  # seconds


def write(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old one or the new one."""
    from tvmlab._files import whole  # Here, for it brings TVM in, and most runs write nothing.

    with whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


# Execution.


class _ThisInterpreter(KernelSpecManager):
    """Whatever a notebook calls its kernel, and whatever is installed: this interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(resource_dir=str(RESOURCES), **get_kernel_dict(["--log-level=40"]))


class _Client(NotebookClient):
    def create_kernel_manager(self) -> AsyncKernelManager:
        self.km = AsyncKernelManager(
            kernel_name="python3", kernel_spec_manager=_ThisInterpreter(parent=self)
        )
        return self.km


def offline_environment(profile: str | None = None) -> dict[str, str]:
    """Return this process's environment, with the network closed to Python's processes.

    Parameters
    ----------
    profile : str, optional
        A folder that stands in for the user's IPython folder, whose start-up files could change
        what a cell prints.
    """
    environment = dict(os.environ)
    paths = [str(OFFLINE), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if profile is not None:
        environment["IPYTHONDIR"] = profile
    return environment


def execute(notebook: NotebookNode, folder: Path, *, timeout: int = CELL_TIMEOUT) -> float:
    """Run all code cells in a fresh kernel, outputs into `notebook`; return the seconds it took.

    Raises
    ------
    NotebookError
        A cell raised, took longer than `timeout` seconds or killed the kernel; names the cell.
    """
    client = _Client(
        notebook,
        timeout=timeout,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    start = time.monotonic()
    where = "start of the kernel"
    try:
        with (
            tempfile.TemporaryDirectory(prefix="notebooks-") as profile,
            client.setup_kernel(env=offline_environment(profile)),
        ):
            count = 0
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                count += 1
                where = f"cell {cell.id}"
                cell.outputs = []
                client.execute_cell(cell, index, execution_count=count)
    except CellExecutionError as error:
        raise NotebookError(f"{where}: {_plain(str(error)).strip()}") from error
    except CellTimeoutError as error:
        raise NotebookError(f"{where}: still running after {timeout} s") from error
    except (DeadKernelError, RuntimeError) as error:
        raise NotebookError(f"{where}: the kernel died: {error}") from error
    return time.monotonic() - start


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def changes(before: str, after: str, path: Path, limit: int = 40) -> str:
    """Return the first lines of a diff between two texts of a notebook, pictures shortened."""
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"{path} (now)", f"{path} (new)", "", "", 1, ""
        )
    )
    shown = [line if len(line) <= 160 else line[:157] + "..." for line in lines[:limit]]
    if len(lines) > limit:
        shown.append(f"... and {len(lines) - limit} more lines")
    return "\n".join(shown)


# The command.


def find(paths: Sequence[str]) -> list[Path]:
    """Return the notebooks under the given files and folders, in order and without repeats."""
    found: set[Path] = set()
    for path in [Path(name) for name in paths] or [NOTEBOOKS]:
        if path.is_dir():
            found.update(
                file
                for file in path.rglob("*.ipynb")
                if not {".ipynb_checkpoints", "build", *TRANSLATED}
                & set(file.relative_to(path).parts)
            )
        elif path.is_file() and path.resolve().parent.name in TRANSLATED:
            raise NotebookError(
                f"{path}: its code and outputs are copies: execute the English notebook, then run "
                "scripts/translations.py"
            )
        elif path.is_file():
            found.add(path)
        else:
            raise NotebookError(f"{path}: no such file or folder")
    return sorted({path.resolve() for path in found})


def with_contents(paths: Sequence[Path], *, run: bool) -> Iterator[Path]:
    """Yield the notebooks, and then the tables of contents beside them that are theirs no more."""
    yield from paths
    if run:  # What came before has been written by now.
        beside = {path.parent / CONTENTS for path in paths}.difference(paths)
        yield from sorted(path for path in beside if path.is_file() and stale(path))


def process(path: Path, *, run: bool, check: bool) -> bool:
    """Bring one notebook up to date; return whether its file is, or would be, another."""
    before = path.read_text(encoding="utf-8")
    old = load(path)
    if run and (missing := missing_needs(old)):
        print(f"{path.name}: skipped, this machine lacks {', '.join(missing)}", flush=True)
        return False
    # Outputs are written by a machine that has all the tools, or the file would be of two runs.
    if run and (reasons := dict.fromkeys(r for cell in old.cells for r in missing_tools(cell))):
        print(f"{path.name}: skipped, {'; '.join(reasons)}", flush=True)
        return False
    new, took = copy.deepcopy(old), ""
    if run:
        seconds = execute(new, path.parent)
        took = f" ({seconds:.0f} s)"
    after = dumps(new)
    if after == before:
        print(f"{path.name}: unchanged{took}", flush=True)
        return False
    print(f"{path.name}: {'would change' if check else 'written'}{took}")
    print(changes(before, after, path.name), flush=True)
    if check:
        return True
    if path.read_text(encoding="utf-8") != before:
        raise NotebookError("somebody saved the file while it was executed: run again")
    write(path, after)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", help="notebooks or folders; notebooks/ by default")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on a change")
    parser.add_argument("--no-run", action="store_true", help="do not execute, only canonicalize")
    options = parser.parse_args(arguments)
    count = changed = failed = 0
    try:
        paths = find(options.paths)
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 2
    run = not options.no_run
    for path in with_contents(paths, run=run):
        count += 1
        try:
            changed += process(path, run=run, check=options.check)
        except NotebookError as error:
            failed += 1
            print(f"{path.name}: FAILED, left as it is\n{error}", file=sys.stderr, flush=True)
    print(f"{count} notebooks, {changed} changed, {failed} failed")
    return 1 if failed or (options.check and changed) else 0


if __name__ == "__main__":
    sys.exit(main())
