"""The record of `make scoreboard`: what was right is right, and what was refused is not wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.short import ALL

ROOT = Path(__file__).resolve().parents[2]
FALSE = "node test_string_concat given"  # TVM has no strings


def test_nothing_is_worse_than_recorded(tmp_path: Path) -> None:
    """Check a record that begins with a false line, which shows that a regression is found."""
    record = tmp_path / "record.txt"
    true = (ROOT / "tests" / "data" / "scoreboard.txt").read_text(encoding="utf-8")
    others = true.replace(f"{FALSE} refused\n", "")
    record.write_text(f"{FALSE} right\n{others}", encoding="utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "scoreboard.py"), "--jobs", "1"]
    command += ["--check", str(record), *(["--all"] if ALL else [])]
    # A process of its own, because the script forks, and a fork has none of TVM's threads.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    *worse, summary = done.stdout.splitlines()
    assert [line.partition(": ")[0] for line in worse] == [FALSE], done.stdout + done.stderr
    assert int(summary.split()[0]) > 100
    assert done.returncode == 1
