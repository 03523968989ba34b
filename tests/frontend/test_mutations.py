"""Damaged ONNX models and exported programs: refused in words, or the same numbers as the peer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.short import ALL

# PyTorch refuses this argument of an operator that does nothing at inference.
HARMLESS = "dropout probability has to be between 0 and 1"
SCRIPT = Path(__file__).with_name("mutations.py")


def results(kind: str, numbers: list[int]) -> dict[int, list[str]]:
    """Return the status of each mutation and its reason, from as many processes as it takes."""
    found: dict[int, list[str]] = {}
    while rest := [number for number in numbers if number not in found]:
        command = [sys.executable, str(SCRIPT), kind, *map(str, rest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for number, *result in map(json.loads, done.stdout.splitlines()):
            found[number] = result
        assert rest[0] in found, done.stderr
        if done.returncode:  # SIGPROF and SIGALRM end a mutation that hangs
            number, phase = list(found)[-1], found[list(found)[-1]][0]
            found[number] = [f"died in {phase}", str(done.returncode)]
    return found


@pytest.mark.parametrize(("kind", "count", "step"), [("onnx", 500, 13), ("pytorch", 200, 14)])
def test_mutations(kind: str, count: int, step: int) -> None:
    """No crash, no hang and no wrong result; what runs also runs in ONNX Runtime or PyTorch."""
    found = results(kind, list(range(0, count, 1 if ALL else step)))
    good = ("right", "refused", "unreadable", "died in peer", "died in reading")
    bad = {n: result for n, result in found.items() if result[0] not in good}
    assert {n: result for n, result in bad.items() if HARMLESS not in result[1]} == {}
    statuses = [status for status, _ in found.values()]
    assert min(map(statuses.count, ("right", "refused"))) > len(found) / 8
