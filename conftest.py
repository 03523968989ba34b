"""What every pytest run of this repository shares, the nbval runs of the notebooks included.

pytest reads this file for `tests/` and for `notebooks/` alike, which a file under `tests/` would
not be.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))

try:
    from notebooks import missing_needs, missing_tools
except ModuleNotFoundError as error:
    pytest.exit(f"{error}: run `make setup`, then .venv/bin/python -m pytest", returncode=4)

SKIPS = ROOT / "tests" / "skips.txt"  # the reasons for which a test may be skipped


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's IPython files, and the make that runs us, out of what is tested."""
    # Not a fixture: nbval's cells have none.
    folder = tempfile.TemporaryDirectory(prefix="ipython-")
    config.add_cleanup(folder.cleanup)
    os.environ["IPYTHONDIR"] = folder.name
    # `make test` runs this: each make under test would obey that make's flags and say its level.
    for name in ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"):
        os.environ.pop(name, None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # TVM ties its threads to cores: several processes would sit on the same ones.
        os.environ["TVM_BIND_THREADS"] = "0"


@pytest.hookimpl(optionalhook=True)  # the runs of nbval that tests start do without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Say what ``-n auto`` is: half as many again as this process may use processors, and up to 8.

    xdist's own count leaves out hyperthreads and affinity. Many tests wait, for servers, browsers
    and what they kill. Every worker holds networks of a hundred megabytes, and beyond eight the
    longest test is what takes the time.
    """
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1  # macOS and Windows tell no affinity
    return min(8, processors + processors // 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest notebooks; skip notebooks and cells that need a missing program."""
    items.sort(key=_minutes, reverse=True)
    for item in items:
        notebook = getattr(item.parent, "nb", None)  # Only nbval's collector has one.
        if notebook is None or item.parent is None:
            continue
        if missing := missing_needs(notebook):
            reason = f"{item.parent.path.name} needs {', '.join(missing)}: not on this machine"
            item.add_marker(pytest.mark.skip(reason=reason))
        elif reasons := missing_tools(item.cell):
            reason = f"{item.parent.path.name}: {'; '.join(reasons)}"
            item.add_marker(pytest.mark.skip(reason=reason))


def _minutes(item: pytest.Item) -> int:
    notebook = getattr(item.parent, "nb", None)
    # A notebook of the reader's own says nothing of itself.
    return int(notebook.metadata.get("tvmlab", {}).get("minutes", 0)) if notebook else 0


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped for a reason that `SKIPS` does not allow."""
    unknown = _unknown_skips(session.config)
    if session.exitstatus == pytest.ExitCode.OK and unknown:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name these reasons; pytest's own summary (-ra) has all of them."""
    for reason in _unknown_skips(terminalreporter.config):
        line = f"skipped for a reason that is not in tests/{SKIPS.name}, so the run fails: {reason}"
        terminalreporter.line(line, red=True)


def _unknown_skips(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = getattr(reporter, "stats", {})  # xdist's workers have no reporter
    found = {f"expected to fail: {report.nodeid}" for report in stats.get("xfailed", [])}
    for report in stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found.add(text.removeprefix("Skipped: "))
    lines = SKIPS.read_text(encoding="utf-8").splitlines()
    allowed = re.compile("|".join(f"(?:{line})" for line in lines if line and line[0] != "#"))
    return sorted(reason for reason in found if not allowed.fullmatch(reason))
