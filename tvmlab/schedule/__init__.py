"""Schedules for a CPU without tuning: rules, and the passes that prepare for them.

The design follows TVM's dlight. Each class schedules one family of operators: its ``apply`` takes a
TIR function and returns its schedule, or None. One pass applies the rules to every function without
a schedule. `tvmlab.compile` uses them by default.
"""

from .apply import ApplyRules, ApplyTuned, Tuned
from .contraction import Contraction
from .layout import channels_last
from .legalize import legalizations
from .lowered import PIPELINE
from .machine import Machine
from .norms import Rows
from .other_rules import Depthwise, ElementWise, Parallel, Reduction
from .pipeline import STEPS, fused_passes, rules, schedule_passes
from .summary import Kernel, Summary
from .tile_size import Layouts, Tile
from .winograd import Squares, WinogradTransform
from .work import Tally, Work

__all__ = [
    "PIPELINE",
    "STEPS",
    "ApplyRules",
    "ApplyTuned",
    "Contraction",
    "Depthwise",
    "ElementWise",
    "Kernel",
    "Layouts",
    "Machine",
    "Parallel",
    "Reduction",
    "Rows",
    "Squares",
    "Summary",
    "Tally",
    "Tile",
    "Tuned",
    "WinogradTransform",
    "Work",
    "channels_last",
    "fused_passes",
    "legalizations",
    "rules",
    "schedule_passes",
]
