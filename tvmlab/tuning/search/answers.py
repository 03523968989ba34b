"""Whether two kernels of one function computed the same."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.ir import IRModule

from ..measuring.kernels import written

__all__ = ["ROUNDING", "output_types", "same_answer"]

ROUNDING = 1e-3
"""How far sums of floating-point outputs may differ, relative to the sum of their magnitudes."""


def output_types(module: IRModule) -> list[str]:
    """List the types of what a function writes.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main``.

    Returns
    -------
    list of str
        The dtypes of the parameters that its blocks write, in their order; that of the last
        parameter where no block says.
    """
    function = module["main"]
    return [str(function.params[place].dtype) for place in written(function)]


def same_answer(answer: Sequence[float], expected: Sequence[float], types: Sequence[str]) -> bool:
    """Compare two fingerprints.

    Parameters
    ----------
    answer, expected : sequence of float
        Two numbers an output: the sum of its magnitudes, and a sum of it with seeded signs.
    types : sequence of str
        The outputs' dtypes.

    Returns
    -------
    bool
        Whether they agree: integers exactly, the others up to `ROUNDING`.
    """
    if len(answer) != len(expected) or len(answer) != 2 * len(types):
        return False
    for index, dtype in enumerate(types):
        scale = abs(expected[2 * index])
        allowed = ROUNDING * scale if "float" in dtype else 0.0
        for place in (2 * index, 2 * index + 1):
            # Written so that a NaN, which compares with nothing, is no agreement.
            if not abs(answer[place] - expected[place]) <= allowed:
                return False
    return True
