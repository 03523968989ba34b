"""List a module's operators, their numbers of calls, and their multiply-accumulates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm import ir, relax

from ..support.wording import table

__all__ = ["Operators", "Row", "operators"]


@dataclass(frozen=True)
class Row:
    """One operator of a module.

    Attributes
    ----------
    operator, calls, macs : str, int, int
        Its name, such as ``"nn.conv2d"``; how often it is called; the multiply-accumulates of all
        calls whose shapes are known.
    """

    operator: str
    calls: int
    macs: int


@dataclass(frozen=True)
class Operators:
    """The operators of a module; print it for a table.

    Attributes
    ----------
    rows : tuple of Row
        Sorted by multiply-accumulates, the largest first.
    """

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        """Format the operators as a table, with totals."""
        calls, macs = (sum(getattr(row, name) for row in self.rows) for name in ("calls", "macs"))
        rows = [
            (row.operator, row.calls, f"{row.macs:,}", f"{row.macs / max(macs, 1):.1%}")
            for row in (*self.rows, Row("all", calls, macs))
        ]
        return table(("operator", "calls", "multiply-accumulates", "share"), rows)


def operators(mod: ir.IRModule) -> Operators:
    """List the operators that a module's Relax functions call.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        Any module; operators in nested functions and in branches count, too.

    Returns
    -------
    Operators
    """
    from ..npu.coverage import macs, operator

    calls: Counter[str] = Counter()
    work: Counter[str] = Counter()

    def count(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            name = operator(expr)
            calls[name] += 1
            work[name] += macs(expr)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, count)
    rows = [Row(name, number, work[name]) for name, number in calls.items()]
    return Operators(tuple(sorted(rows, key=lambda row: (-row.macs, -row.calls, row.operator))))
