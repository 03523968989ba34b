"""Pictures with a choice: one for every answer, made beforehand, so that no kernel has to run.

`choose` draws a state for each combination of answers and shows them as one output. Everything is
in that output: it works in JupyterLab and on a page without a kernel, it needs no package, it is
the same in each run, and a test can compare it. `loop_nest`, `matched` and `memory` draw states.
"""

from .choices import State, choose
from .loops import loop_nest
from .patterns import matched
from .sram import memory

__all__ = ["State", "choose", "loop_nest", "matched", "memory"]
