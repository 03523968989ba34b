"""What the accelerator's regions of a compiled module cost, by its own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...npu.report import Table

__all__ = ["tables"]

_KIND = "tvmlab_npu"


def tables(built: Any) -> dict[str, Table]:
    """Count the cycles of every region.

    Parameters
    ----------
    built : tvm.relax.VMExecutable or tvm.runtime.Module
        What was compiled, or loaded from a file.

    Returns
    -------
    dict of str to tvmlab.npu.report.Table
        By the name of the region's function; empty without an accelerator.
    """
    found: dict[str, Table] = {}
    left = list(getattr(built, "mod", built).imports)
    while left:
        module = left.pop()
        left.extend(module.imports)
        if str(module.kind) == _KIND:
            from ...npu import report, simulator
            from ...npu.program import Program

            name, program = simulator.described(module)
            (found[name],) = report(Program.from_bytes(program)).regions
    return found
