"""Run nbval in a process of its own, offline, and read what it says of each cell."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from notebook_rules import ROOT

from notebooks import CELL_TIMEOUT, NOTEBOOKS, offline_environment

STRICT = (
    "--nbval",
    f"--nbval-sanitize-with={ROOT / 'tests' / 'sanitize.cfg'}",
    f"--nbval-cell-timeout={CELL_TIMEOUT}",
)


def copy_notebooks(folder: Path) -> Path:
    """Copy the folder of notebooks, as some read others; return the copy.

    A copy of a notebook runs in another place: one that relies on its own folder fails there.
    """
    there = folder / NOTEBOOKS.name
    shutil.copytree(NOTEBOOKS, there, ignore=shutil.ignore_patterns(".*", "build"))
    return there


def run_nbval(
    path: Path,
    *options: str,
    before: Sequence[str] = (),
    kernel: str | None = None,
    **environment: str,
) -> tuple[dict[str, str], str]:
    """Compare one notebook strictly, away from the repository's own pytest settings.

    Parameters
    ----------
    path : Path
        The notebook; the report is written beside it.
    options : str
        More options for pytest.
    before : sequence of str
        A command that the run is put behind.
    kernel : str, optional
        A kernel's name in place of this interpreter's own.
    environment : str
        Changes to the environment.

    Returns
    -------
    cells : dict of str to str
        For each code cell, by nbval's name: "" where it passed, else what nbval said.
    text : str
        All that the run printed.
    """
    report = path.with_suffix(".xml")
    report.unlink(missing_ok=True)
    run = subprocess.run(
        [
            *before,
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", "/dev/null", f"--rootdir={path.parent}", f"--junitxml={report}"),
            *("-p", "nbval.plugin"),
            *STRICT,
            "--nbval-current-env" if kernel is None else f"--nbval-kernel-name={kernel}",
            *options,
            str(path),
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
    if not report.exists():
        raise AssertionError(f"nbval wrote no report:\n{text}")
    cells = {}
    for case in ElementTree.parse(report).iter("testcase"):
        said = [f"{part.tag}: {part.get('message')}\n{part.text}" for part in case]
        cells[case.get("name", "")] = "".join(said)
    return cells, text
