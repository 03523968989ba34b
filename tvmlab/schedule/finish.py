"""The last step from a schedule to a kernel: what no schedule primitive can say."""

from __future__ import annotations

from tvm import s_tir
from tvm.ir import IRModule

from .prefetch import fetch_ahead

__all__ = ["finish"]


def finish(sch: s_tir.Schedule) -> IRModule:
    """Carry out the marks that a schedule left on its loops."""
    return IRModule({"main": fetch_ahead(sch.mod["main"])})
