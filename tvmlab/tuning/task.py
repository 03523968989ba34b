"""What is tuned: one function of a network, in a few layouts, each with its spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import s_tir
from tvm.ir import IRModule

__all__ = ["Task", "Variant"]


@dataclass(frozen=True)
class Variant:
    """A task's function with its weights packed in one way.

    Attributes
    ----------
    layout : str
        What the layout is, as `tvmlab.schedule` reads it; empty for a function that has but one.
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule: MetaSchedule's workload.
    rule : tvm.s_tir.Schedule or None
        What the rules of `tvmlab.schedule` make of it; None where no rule is made for it.
    spaces : callable
        Makes the design spaces: schedules of `module` with decisions to sample.
    """

    layout: str
    module: IRModule
    rule: s_tir.Schedule | None
    spaces: Callable[[], list[s_tir.Schedule]]


@dataclass(frozen=True)
class Task:
    """One function of a network.

    Attributes
    ----------
    name : str
        The function's name: the operators that fusion joined.
    operator : str
        The operator and the shapes whose layout is to be chosen; empty where there is none.
    target : tvm.target.Target
        What it is compiled for.
    calls : int
        How often the network calls it.
    flops : float
        Operations of one call, a multiply-add being two.
    variants : tuple of Variant
        At least one; the first is what `tvmlab.compile` takes without records.
    """

    name: str
    operator: str
    target: tvm.target.Target
    calls: int
    flops: float
    variants: tuple[Variant, ...]
