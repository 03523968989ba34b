"""Schedules for a CPU that need no tuning: rules, and the passes that prepare for them.

The manner is that of TVM's dlight: one class a family of operators, whose ``apply`` takes a TIR
function and returns its schedule, or None; one pass that applies them to every function that nobody
has scheduled yet. `tvmlab.compile` uses them by default.
"""

from .apply import ApplyRules
from .contraction import Contraction
from .depthwise import Depthwise
from .elementwise import ElementWise
from .layout import channels_last
from .legalize import legalizations
from .machine import Machine
from .parallel import Parallel
from .pipeline import STEPS, schedule_passes
from .reduction import Reduction
from .summary import Kernel, Summary
from .tile import Tile
from .transform import WinogradTransform
from .winograd import Squares

__all__ = [
    "STEPS",
    "ApplyRules",
    "Contraction",
    "Depthwise",
    "ElementWise",
    "Kernel",
    "Machine",
    "Parallel",
    "Reduction",
    "Squares",
    "Summary",
    "Tile",
    "WinogradTransform",
    "channels_last",
    "legalizations",
    "schedule_passes",
]
