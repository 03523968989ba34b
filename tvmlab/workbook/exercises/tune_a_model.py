"""The checks of notebook 07, Tune a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import s_tir

from ...tuning.search.grid import size
from .judge import Wrong, call, exercise, of_type, whole

LOOPS = ["i_0", "j_0", "k_0", "k_1", "i_1", "j_1"]
WITHOUT, SPLITS = 48, 8  # points of the space without a split of k, and ways to split it

RULE, EVEN = [100, 100, 200, 300, 300], [100, 100, 100, 200, 200]
# What is true, and whether the candidate wins; the times of its rounds and of the rule's, in µs.
DUELS = [
    ("it is 5 percent slower, and lucky twice", False, [80, 105, 160, 315, 315], RULE),
    ("it is 10 percent faster, and unlucky once", True, [90, 90, 990, 180, 180], EVEN),
    ("it is 10 percent faster, and unlucky twice", True, [90, 90, 180, 900, 900], RULE),
    ("it is 1 percent faster, which is not enough", False, [99, 99, 99, 198, 198], EVEN),
    ("it is 3 percent faster, which is enough", True, [97, 97, 97, 194, 194], EVEN),
]
# Processes, seconds to build, seconds to run.
POOLS = [(2, 1, 4), (2, 1, 1), (1, 4, 2), (4, 2, 3), (2, 4, 3), (1, 4, 5), (4, 4, 1)]


@exercise
def check_search_space(deeper: Callable[[], s_tir.Schedule], product: tvm.IRModule) -> str:
    """Check a search space in which the tuner also splits the loop over `k`.

    Parameters
    ----------
    deeper : callable
        Returns a schedule of the product, with sampled decisions.
    product : tvm.IRModule
        The notebook's product of two matrices.
    """
    sch = of_type(call(deeper), s_tir.Schedule, "deeper()", "a schedule")
    names = [sch.get(loop).loop_var.name for loop in sch.get_loops(sch.get_sblock("C"))]
    if names != LOOPS:
        raise Wrong(f"the loops are {' '.join(names)}, expected {' '.join(LOOPS)}")
    count = size(product, sch)
    if count == WITHOUT:
        raise Wrong(f"{count} points, as many as before: the split of k is not the tuner's choice")
    if count != WITHOUT * SPLITS:
        raise Wrong(
            f"{count} points, and {SPLITS} splits of k would make {WITHOUT * SPLITS} of {WITHOUT}: "
            "may its inner part have any size?"
        )
    return f"{count} points"


@exercise
def check_wins(wins: Callable[[Sequence[int], Sequence[int]], bool]) -> str:
    """Check who wins a duel in which a neighbour disturbs some rounds.

    Parameters
    ----------
    wins : callable
        Takes the times of the candidate and of the rule, round by round; returns whether the
        candidate wins.
    """
    for what, wanted, candidate, rule in DUELS:
        # Copies, because the function may sort its lists in place.
        won = call(wins, list(candidate), list(rule))
        if won != wanted:
            verdict = "does not win" if wanted else "wins"
            raise Wrong(
                f"the candidate {verdict}, but {what}\n  candidate {candidate}\n  rule      {rule}"
            )
    return "no neighbour decides"


@exercise
def check_servers(enough: Callable[[int, float, float], int]) -> str:
    """Check how many servers keep the compilers busy.

    Parameters
    ----------
    enough : callable
        Takes the number of processes that compile, the seconds for one kernel to compile, and those
        to measure it; returns the number of servers.
    """
    for processes, build, run in POOLS:
        wanted = math.ceil(processes * run / build)
        name = f"enough({processes}, {build}, {run})"
        found = whole(call(enough, processes, build, run), name)
        what = f"{name} gives {found}"
        if found < wanted:
            raise Wrong(
                f"{what}, and compilers wait: while a server measures for {run} s, they make "
                f"{processes * run / build:g} kernels"
            )
        if found > wanted:
            raise Wrong(f"{what}, and {wanted} would do: a server is spare")
    return "no compiler waits, no server is spare"
