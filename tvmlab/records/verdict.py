"""What was decided about a function, after it was tuned."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

import tvm

import tvmlab

from ..support.host import processor_name
from .result import check_date, check_target, check_text, now, seconds_of

__all__ = ["Verdict", "after"]


@dataclass(frozen=True)
class Verdict:
    """The last word on a function: what `tvmlab.compile` makes of it from now on.

    Attributes
    ----------
    function : str
        The `workload_id` of the function as the rules lay it out: by it `tvmlab.compile` asks.
    workload : str
        The `workload_id` of what is to be scheduled: the same function with the weights of its
        operator packed as `layout` says; `function` where that is empty.
    task : str
        The task's name.
    target : dict
        What it was decided for, as `target_data` writes it.
    threads : int
        Threads that it ran with.
    rule : float
        Median seconds a call of what is taken without tuning; 0 where that does not run.
    operator, layout : str
        The operator, and its layout; empty means the rules' choice.
    trace : list or None
        The schedule of `workload`, as `tvmlab.records.traces.as_data` writes it; None where
        the rules are to schedule it.
    ratios : tuple of float
        Of what was the best in measuring, one a process: its time over the rule's, the median of
        the rounds in which both were measured alternately. Empty if no candidate met the rule.
    cpu, tvm, tvmlab, date : str
        As of a `Result`.
    """

    function: str
    workload: str
    task: str
    target: dict[str, Any]
    threads: int
    rule: float
    operator: str = ""
    layout: str = ""
    trace: list[Any] | None = None
    ratios: tuple[float, ...] = ()
    cpu: str = field(default_factory=processor_name)
    tvm: str = tvm.__version__
    tvmlab: str = field(default_factory=lambda: tvmlab.__version__)
    date: str = field(default_factory=now)

    @property
    def stays(self) -> bool:
        """Whether everything stays as it is without tuning."""
        return self.trace is None and not self.layout

    @property
    def ratio(self) -> float:
        """What a call takes from now on, over what it took; 1 where the rule stays."""
        return 1.0 if self.stays or not self.ratios else statistics.median(self.ratios)

    def line(self) -> dict[str, Any]:
        """Write it as a line's fields."""
        return {"kind": "verdict", **{one.name: getattr(self, one.name) for one in fields(self)}}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Verdict:
        """Read a line's fields.

        Raises
        ------
        ValueError
            A field is missing, or is not what it should be.
        """
        said: dict[str, Any] = {one.name: line.get(one.name) for one in fields(cls)}
        for name in _TEXTS:
            check_text(said[name], name)
        check_target(said["target"])
        check_date(said["date"])
        if type(said["threads"]) is not int or not 0 <= said["threads"] < 2**31:
            raise ValueError("its threads are no number")
        if not isinstance(said["trace"], list | None):
            raise ValueError("its trace is no list")
        said["ratios"] = seconds_of(said["ratios"], "ratios")
        rule = said["rule"]
        said["rule"] = 0.0 if rule == 0 and rule is not False else seconds_of([rule], "rule")[0]
        if not said["function"] or not said["workload"]:
            raise ValueError("it names no function")
        if not said["layout"] and said["workload"] != said["function"]:
            raise ValueError("it names two functions of one layout")
        return cls(**said)


def after(date: str) -> str:
    """Give the next date after one, as a record has it; the same where there is none."""
    try:
        return (datetime.fromisoformat(date) + timedelta(microseconds=1)).isoformat()
    except OverflowError:
        return date


_TEXTS = tuple(one.name for one in fields(Verdict) if one.type == "str")
