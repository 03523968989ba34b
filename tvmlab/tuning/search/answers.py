"""Whether two kernels of one function computed the same."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.ir import IRModule

from ..kernels import written

__all__ = ["same_answer", "tolerances"]

ROUNDING = 1e-3
"""How far sums of floating-point outputs may differ, relative to the sum of their magnitudes."""
FLIPS = 1e-5
"""The same of what was rounded to eight bits: sums in another order flip a few roundings."""


def tolerances(module: IRModule) -> list[float]:
    """Say how far the outputs of two schedules of a function may differ.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main``.

    Returns
    -------
    list of float
        For each parameter that its blocks write, in their order: `ROUNDING` where it holds
        floating-point numbers, `FLIPS` where it holds int8 or uint8 made of such, else 0.
    """
    function = module["main"]
    rounds = any("float" in str(parameter.dtype) for parameter in function.params)
    found = []
    for place in written(function):
        dtype = str(function.params[place].dtype)
        eight = dtype in ("int8", "uint8") and rounds
        found.append(ROUNDING if "float" in dtype else FLIPS if eight else 0.0)
    return found


def same_answer(
    answer: Sequence[float], expected: Sequence[float], allowed: Sequence[float]
) -> bool:
    """Compare two fingerprints.

    Parameters
    ----------
    answer, expected : sequence of float
        Two numbers an output: the sum of its magnitudes, and a sum of it with seeded signs.
    allowed : sequence of float
        For each output, how far they may differ, relative to the sum of its magnitudes.

    Returns
    -------
    bool
        Whether they agree.
    """
    if len(answer) != len(expected) or len(answer) != 2 * len(allowed):
        return False
    for index, share in enumerate(allowed):
        most = share * abs(expected[2 * index])
        for place in (2 * index, 2 * index + 1):
            # Written so that a NaN, which compares with nothing, is no agreement.
            if not abs(answer[place] - expected[place]) <= most:
                return False
    return True
