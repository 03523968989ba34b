"""The checks of the notebooks' exercises, which explain mistakes in the learner's terms.

Call a check with your answer. It prints ``done: ...`` with the result, or ``not yet: ...`` with a
hint: a shape, the first wrong value, the lines in which the IR differs. A check returns
nothing and does not raise for a wrong answer. The worked solutions are in ``notebooks/solutions/``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Find a check in the modules of this package, which are imported on first use."""
    for module in ("programs", "graphs") if name.startswith("check_") else ():
        if found := getattr(import_module(f".{module}", __name__), name, None):
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
