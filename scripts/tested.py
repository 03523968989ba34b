"""Add a test run to the table of docs/tested.md, with the versions of that run.

    make tested                      # run `make test` and then this script
    TVMLAB_TEST_ALL=1 make tested    # the same with the tests that take long

The counts come from the files that both pytest runs write to build/. The script refuses a checkout
with uncommitted changes. It drops the rows of other commits. For several Python versions, run it in
one checkout per version, all at the same commit, and copy the table from one checkout to the next.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "tested.md"
RUNS = (ROOT / "build" / "tests.xml", ROOT / "build" / "notebooks.xml")
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "onnxruntime", "ai-edge-litert")
HEAD = f"""\
# Tested with

Each row is a test run without failures, which `make tested` entered with the versions of that run.
All rows are of the same commit. Other Python versions, systems and package versions are not tested.

"Form" is the command of the run. `make test` skips most of the tests that take long, and with
`TVMLAB_TEST_ALL=1`, as in `make test-all`, it skips none of them. "Tests" counts the tests that
passed in `tests`, "Cells" the notebook cells that passed, and "Skipped" the tests and cells that
were skipped for a reason in `tests/skips.txt`. "Minutes" is the duration of both pytest runs,
without set-up, lint and types.

| Python | Form | Commit | System | {" | ".join(PACKAGES)} | \
Tests | Cells | Skipped | Minutes | Day |
|---|---|---|---|{"---|" * len(PACKAGES)}---|---|---|---|---|
"""


def counts(path: Path) -> tuple[int, int, float]:
    """Return how many tests of a run passed and were skipped, and its seconds."""
    suite = ElementTree.parse(path).getroot()[0].attrib
    return int(suite["tests"]) - int(suite["skipped"]), int(suite["skipped"]), float(suite["time"])


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def version(package: str) -> str:
    """Return a package's version; PyTorch's includes the build, which its metadata omit."""
    if package == "torch":
        return str(importlib.import_module("torch").__version__)
    return importlib.metadata.version(package)


def row(commit: str) -> str:
    """Return this run's row."""
    all_ = "TVMLAB_TEST_ALL=1 " if os.environ.get("TVMLAB_TEST_ALL") else ""
    (tests, skipped, seconds), (cells, more, longer) = map(counts, RUNS)
    columns = [
        ".".join(platform.python_version_tuple()[:2]),
        f"`{all_}make test`",
        commit,
        f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.machine()}",
        *map(version, PACKAGES),
        f"{tests:,}",
        str(cells),
        str(skipped + more),
        f"{(seconds + longer) / 60:.0f}",
        datetime.date.today().isoformat(),
    ]
    return f"| {' | '.join(columns)} |"


def merged(old: str, new: str) -> str:
    """Return the table with a new row, which replaces rows of other commits or the same form."""
    found = [*re.findall(r"^\| 3\..*$", old, re.MULTILINE), new]
    found = [row for row in found if row.split("|")[3] == new.split("|")[3]]
    rows = {tuple(row.split("|")[1:3]): row for row in found}
    return HEAD + "\n".join(rows[key] for key in sorted(rows)) + "\n"


def main() -> None:
    """Add the run to the table."""
    if changed := git("status", "--porcelain", "--", ":/", ":!docs/tested.md"):
        sys.exit(f"the checkout differs from its commit; commit or undo these changes:\n{changed}")
    new = row(git("rev-parse", "--short=10", "HEAD"))
    TABLE.write_text(merged(TABLE.read_text(encoding="utf-8"), new), encoding="utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {new}")


if __name__ == "__main__":
    main()
