"""Options of tvmc that this command has not, and what became of them.

They are tvmc's as TVM 0.18 had it (``python/tvm/driver/tvmc`` there). Notebook 08 prints the table.
"""

from __future__ import annotations

import fnmatch
import itertools
from typing import NamedTuple

__all__ = ["ROWS", "Retired", "retired"]


class Retired(NamedTuple):
    """What became of some options.

    Attributes
    ----------
    commands : tuple of str
        The commands that had them.
    options : tuple of str
        As they were written; ``*`` stands for anything.
    now : str
        In words.
    """

    commands: tuple[str, ...]
    options: tuple[str, ...]
    now: str


_TABLE = """
compile, tune | --target-*-* | `--target "llvm -mcpu=x86-64-v3"`: kind and options are one word
compile, tune | --target-host | code for a processor has no other host
compile, tune | --model-format | a file's content says what it is
compile | --executor*, --runtime*, --use-vm, --workspace-pools* | there is one virtual machine
compile | -f, --output-format | there is one form of a package
compile | --module-name | nothing asks for a name
compile | -O, --opt-level, --pass-config, --disabled-pass | in Python: `tvm.transform.PassContext`
compile | --print-pass-times, --print-ir-* | in Python: `tvm.ir.instrument`
compile | --desired-layout-ops | in Python: `tvm.relax.transform.ConvertLayout`
compile, tune | --mixed-precision* | in Python: `tvm.relax.transform.ToMixedPrecision`
compile | --dump-offloads | `tvmlab partition MODEL`
run | --profile | `tvmlab profile PROGRAM`
run | --end-to-end | `tvmlab bench PROGRAM`: with copies in and out
run | --number | as many calls as the clock needs
run | --device | the package knows what it was made for
run | --list-options, --project-option | microTVM was removed, and nothing took its place
tune | --tuning-records | `-o FILE`: its records are read first, then added to
tune | --number, --repeat, --min-repeat-ms, --timeout | in Python: `tvmlab.tuning.Measure`
tune | --parallel | all free servers of the tracker measure
tune | --desired-layout* | the schedules choose the layout
tune | --tasks | `--total-trials 64`: trials go where they bring most
tune | --enable-autoscheduler, --include-simple-tasks, --log-estimated-latency | there is one way
tune | --num-cores | `--target "llvm -num-cores=4"`
tune | --cache-line-bytes, --vector-unit-bytes, --max-*, --warp-size | the target says it
"""


def _rows() -> tuple[Retired, ...]:
    rows = []
    for line in _TABLE.strip().splitlines():
        commands, options, now = line.split(" | ")
        rows.append(Retired(tuple(commands.split(", ")), tuple(options.split(", ")), now))
    return tuple(rows)


ROWS = _rows()
"""The table."""


def retired(command: str, option: str) -> str:
    """Say what became of an option.

    Parameters
    ----------
    command : str
        Such as ``"compile"``.
    option : str
        As it was written, without a value.

    Returns
    -------
    str
        In words; empty where tvmc's command had no such option.
    """
    # A value may stand close behind a short option: -O3.
    spelled = {option, option if option.startswith("--") else option[:2]}
    for row in ROWS:
        pairs = itertools.product(spelled, row.options)
        if command in row.commands and any(fnmatch.fnmatchcase(*pair) for pair in pairs):
            return row.now
    return ""
