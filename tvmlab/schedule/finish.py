"""The last step from a schedule to a kernel: what no schedule primitive can say."""

from __future__ import annotations

from tvm import s_tir
from tvm.ir import IRModule

from .prefetch import fetch_ahead

__all__ = ["finish"]


def finish(sch: s_tir.Schedule) -> IRModule:
    """Carry out the marks that a schedule left on its loops.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        Of a module with one function ``main``; by a rule, or replayed from a trace.

    Returns
    -------
    tvm.ir.IRModule
        One function ``main``, ready to be compiled.
    """
    return IRModule({"main": fetch_ahead(sch.mod["main"])})
