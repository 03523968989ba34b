"""Write down what a run of the tests was made with: a row of docs/tested.md.

    make tested                      # runs `make test`, and then this
    TVMLAB_TEST_ALL=1 make tested    # the same, with the tests that take long

The counts come from the files that the two runs of pytest leave in build/. A run with a failure
leaves the table as it is.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "tested.md"
RUNS = tuple(ROOT / "build" / f"{run}.xml" for run in ("tests", "notebooks"))
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "torch", "onnxruntime", "ai-edge-litert")
HEAD = f"""\
# Tested with

All tests are run with the versions in this table, and with no others: a Python that `make setup`
takes and that has no row here has not had them all.

Each row is written by `make tested` after a run in which nothing failed. Its form is what was run:
`make test`, in which a part of the tests that take long is left out, or the same with
`TVMLAB_TEST_ALL=1`, in which none is: that is `make test-all` without its last step, all notebooks
in a browser. Tests are those that passed in pytest's run of `tests`, cells those that passed in its
run of the notebooks; skipped were so many of both together, for reasons that `tests/skips.toml`
explains. Minutes are those of these two runs, without set-up, lint and types.

| Python | Form | System | {" | ".join(PACKAGES)} | Tests | Cells | Skipped | Minutes | Day |
|---|---|---|{"---|" * len(PACKAGES)}---|---|---|---|---|
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


def row() -> str:
    """Return this run's row."""
    all_ = "TVMLAB_TEST_ALL=1 " if os.environ.get("TVMLAB_TEST_ALL") else ""
    runs = [counts(path) for path in RUNS]
    tests, cells = runs[0][0], sum(passed for passed, _, _ in runs[1:])
    version = platform.python_version_tuple()
    return "| {} |".format(
        " | ".join(
            [
                f"{version[0]}.{version[1]}",
                f"`{all_}make test`",
                f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.machine()}",
                *(importlib.metadata.version(name).split("+")[0] for name in PACKAGES),
                f"{tests:,}",
                str(cells),
                str(sum(skipped for _, skipped, _ in runs)),
                f"{sum(seconds for _, _, seconds in runs) / 60:.0f}",
                datetime.date.today().isoformat(),
            ]
        )
    )


def merged(old: str, new: str) -> str:
    """Return the table with a new row in place of the one for the same Python and form."""
    found = [*re.findall(r"^\| 3\..*$", old, re.MULTILINE), new]
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
