"""The checks of the notebooks' exercises: they say what is wrong in a learner's terms.

Call a check with your answer. It prints ``done: ...`` and what holds now, or ``not yet: ...`` and
what to look at: a shape, the first wrong value, the lines in which the IR differs. A check returns
nothing and does not raise for a wrong answer. The worked solutions are in ``notebooks/solutions/``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

_CHECKS = {
    "programs": "wide_vectors fusion round_to_even dequantize guard register_tile search_space "
    "wins servers words damaged_files data_begin whose holes gain",
    "graphs": "crop batch tile_choice choose scaled mended largest as_input pad_stops "
    "drop_requantize fold_pad addition_pattern bill dense_pattern drop_one blocked",
}
_FROM = {f"check_{name}": module for module, names in _CHECKS.items() for name in names.split()}

__all__ = sorted(_FROM)


def __getattr__(name: str) -> Callable[..., None]:
    """Import the module of a check when the check is first asked for."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check: Callable[..., None] = getattr(import_module(f".{_FROM[name]}", __name__), name)
    return check
