"""The result of scheduling a module, function by function."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from .apply import LAYOUT, REASON, RULE, SCHEDULED

__all__ = ["Kernel", "Summary"]

# Words of a function's name; ``conv2d_transpose`` is another operator.
_TRANSPOSES = re.compile(r"(?<!conv\dd_)(?:transpose|layout_transform)")


@dataclass(frozen=True)
class Kernel:
    """One compiled function.

    Attributes
    ----------
    name : str
        Its name: the operators that were fused.
    calls : int
        How often the module's Relax functions call it.
    rule : str
        The rule that scheduled it; empty if none did.
    reason : str
        Why no rule scheduled it, or which rule raised; else empty.
    layout : str
        The register tile that tuning records pack its weights for, as pixels downwards,
        pixels across, channels; empty for the rules' own choice.
    """

    name: str
    calls: int
    rule: str
    reason: str
    layout: str = ""


@dataclass(frozen=True)
class Summary:
    """The rule that scheduled each function; print it for a table.

    Attributes
    ----------
    kernels : tuple of Kernel
        In the order of their first call.
    transposes : int
        Layout transposes that are left, calls on their own or fused.
    """

    kernels: tuple[Kernel, ...]
    transposes: int

    @classmethod
    def of(cls, mod: tvm.ir.IRModule) -> Summary:
        """Read a scheduled module: Relax that calls TIR functions."""
        calls: Counter[str] = Counter()

        def count(expr: Any) -> None:
            if isinstance(expr, relax.Call) and getattr(expr.op, "name", "").startswith(
                "relax.call_tir"
            ):
                calls[expr.args[0].name_hint] += 1

        for _, func in mod.functions_items():
            if isinstance(func, relax.Function):
                relax.analysis.post_order_visit(func.body, count)
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                calls.setdefault(var.name_hint, 0)  # called from outside, or from other TIR
        kernels = []
        for name, number in calls.items():
            func = mod[name]
            if isinstance(func, tirx.PrimFunc):
                rule, reason, layout = (
                    str(func.attrs.get(key, "")) for key in (RULE, REASON, LAYOUT)
                )
                if not rule and func.attrs.get(SCHEDULED, False):
                    reason = "it was scheduled already"
                kernels.append(Kernel(name, number, rule, reason, layout))
        transposes = sum(k.calls * len(_TRANSPOSES.findall(k.name)) for k in kernels)
        return cls(tuple(kernels), transposes)

    @property
    def unscheduled(self) -> tuple[Kernel, ...]:
        """The functions that no rule scheduled."""
        return tuple(kernel for kernel in self.kernels if not kernel.rule)

    def __str__(self) -> str:
        """Format the kernels as a table, grouped by rule."""
        width = max((len(kernel.name) for kernel in self.kernels), default=0)
        lines = [f"{'function':{width}}  calls  rule"]
        for kernel in self.kernels:
            taken = kernel.rule or "none"
            reason = kernel.reason or ("" if kernel.rule else "not asked")
            taken += f" ({reason})" if reason else ""
            taken += f", weights packed for {kernel.layout}" if kernel.layout else ""
            lines.append(f"{kernel.name:{width}}  {kernel.calls:5}  {taken}")
        lines.append(f"transposes left: {self.transposes}")
        return "\n".join(lines)
