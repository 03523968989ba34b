"""Write down what a run of the tests was made with: a row of docs/tested.md.

    make tested                      # runs `make test`, and then this
    TVMLAB_TEST_ALL=1 make tested    # the same, with the tests that take long

The counts come from the files that the two runs of pytest leave in build/. A run with a failure
leaves the table as it is, and so does a checkout that differs from its commit. Rows of another
commit are dropped: for a row per Python, run this in a checkout per Python, all at one commit, and
copy the table from one to the next.
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
RUNS = tuple(ROOT / "build" / f"{run}.xml" for run in ("tests", "notebooks"))
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "onnxruntime", "ai-edge-litert")
HEAD = f"""\
# Tested with

Each row is one run of the tests in which nothing failed, written by `make tested` with the versions
of that run. All rows are of one commit. A Python, a system or a version without a row is not
tested.

The form is the command. `make test` leaves out most of the tests that take long. With
`TVMLAB_TEST_ALL=1` it leaves out none of them, which is `make test-all` without its last step, all
notebooks in a browser. "Tests" counts what passed in pytest's run of `tests`, "Cells" what passed
in its run of the notebooks, and "Skipped" what either run skipped for a reason in
`tests/skips.toml`. "Minutes" is the duration of these two runs, without set-up, lint and types.

| Python | Form | Commit | System | {" | ".join(PACKAGES)} | \
Tests | Cells | Skipped | Minutes | Day |
|---|---|---|---|{"---|" * len(PACKAGES)}---|---|---|---|---|
"""


def counts(path: Path) -> tuple[int, int, float]:
    """Return how many tests of a run passed and were skipped, and its seconds."""
    if not path.is_file():
        sys.exit(f"{path.relative_to(ROOT)} is not there: run `make tested`")
    suite = ElementTree.parse(path).getroot().find("testsuite")
    if suite is None:
        sys.exit(f"{path.relative_to(ROOT)} tells of no tests: run `make tested`")
    total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    if wrong := int(suite.attrib["failures"]) + int(suite.attrib["errors"]):
        sys.exit(f"{path.relative_to(ROOT)}: {wrong} failed, so nothing is written")
    return total - skipped, skipped, float(suite.attrib["time"])


def commit() -> str:
    """Return the commit that is checked out, and refuse a checkout that differs from it."""
    changed = _git("status", "--porcelain", "--", ":/", ":!docs/tested.md")
    if changed:
        sys.exit(f"the checkout differs from its commit, so nothing is written: {changed}")
    return _git("rev-parse", "--short=10", "HEAD")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def row() -> str:
    """Return this run's row."""
    all_ = "TVMLAB_TEST_ALL=1 " if os.environ.get("TVMLAB_TEST_ALL") else ""
    runs = [counts(path) for path in RUNS]
    tests, cells = runs[0][0], sum(passed for passed, _, _ in runs[1:])
    python = platform.python_version_tuple()
    return "| {} |".format(
        " | ".join(
            [
                f"{python[0]}.{python[1]}",
                f"`{all_}make test`",
                commit(),
                f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.machine()}",
                *map(version, PACKAGES),
                f"{tests:,}",
                str(cells),
                str(sum(skipped for _, skipped, _ in runs)),
                f"{sum(seconds for _, _, seconds in runs) / 60:.0f}",
                datetime.date.today().isoformat(),
            ]
        )
    )


def version(package: str) -> str:
    """Return a package's version; for PyTorch with its build, which PyPI's metadata leave out."""
    if package == "torch":
        return str(importlib.import_module("torch").__version__)
    return importlib.metadata.version(package)


def merged(old: str, new: str) -> str:
    """Return the table with a new row, without those of other commits or of the same form."""
    found = [*re.findall(r"^\| 3\..*$", old, re.MULTILINE), new]
    found = [row for row in found if row.split("|")[3] == new.split("|")[3]]
    rows = {tuple(row.split("|")[1:3]): row for row in found}
    return HEAD + "\n".join(rows[key] for key in sorted(rows)) + "\n"


def main() -> None:
    """Write the table anew."""
    new = row()
    old = TABLE.read_text(encoding="utf-8") if TABLE.is_file() else ""
    TABLE.write_text(merged(old, new), encoding="utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {new}")


if __name__ == "__main__":
    main()
