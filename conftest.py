"""What every pytest run of this repository shares, the nbval runs of the notebooks included.

pytest reads this file for `tests/` and for `notebooks/` alike, which a file under `tests/` would
not be.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))

try:
    from notebooks import missing_needs, missing_tools
except ModuleNotFoundError as error:
    pytest.exit(f"{error}: run `make setup`, then .venv/bin/python -m pytest", returncode=4)

SKIPS = ROOT / "tests" / "skips.toml"
# What was not tested, by reason, and the reasons that the ledger does not know: there once all
# tests have run, and before the summary is written.
LEDGER = pytest.StashKey[tuple[Counter[str], list[str]]]()


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
    """Put the notebooks that take longest first; skip, by name, what this machine lacks a tool for.

    Those are notebooks by their `needs`, and cells by their tags.
    """
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End every run with the ledger of what was not tested, and why."""
    skipped, unknown = terminalreporter.config.stash[LEDGER]
    terminalreporter.section("skip ledger")
    if not skipped:
        terminalreporter.line("nothing was skipped")
    for reason, count in sorted(skipped.items()):
        terminalreporter.line(f"{count:4d} x {reason}")
    for reason in unknown:
        terminalreporter.line(f"not in tests/skips.toml, so the run fails: {reason}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a test was skipped for a reason that nobody has entered in the ledger."""
    ledger = session.config.stash[LEDGER] = _ledger(session.config)
    if session.exitstatus == pytest.ExitCode.OK and ledger[1]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _ledger(config: pytest.Config) -> tuple[Counter[str], list[str]]:
    """Count the reasons of what was not tested, and list those that the ledger does not know."""
    reasons: Counter[str] = Counter()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    stats = getattr(reporter, "stats", {})  # One of several processes has no reporter.
    for report in stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    for report in stats.get("xfailed", []):
        reasons[f"expected to fail: {getattr(report, 'wasxfail', '') or report.nodeid}"] += 1
    entries = tomllib.loads(SKIPS.read_text(encoding="utf-8"))["skip"]
    known = re.compile("|".join(f"(?:{each})" for entry in entries for each in entry["reasons"]))
    return reasons, [reason for reason in sorted(reasons) if not known.fullmatch(reason)]
