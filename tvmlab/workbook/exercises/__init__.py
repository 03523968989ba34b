"""The checks of the notebooks' exercises: they say what is wrong in a learner's terms.

Call a check with your answer. It prints ``done: ...`` and what holds now, or ``not yet: ...`` and
what to look at: a shape, the first wrong value, the lines in which the IR differs. A check returns
nothing and does not raise for a wrong answer. Each module holds the checks of one notebook, and
the worked solutions are in ``notebooks/solutions/``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

_CHECKS = {
    "start_here": "wide_vectors fusion",
    "build_tvm": "round_to_even dequantize",
    "schedule_a_computation": "guard register_tile",
    "import_a_resnet": "crop batch tile_choice",
    "import_quantized_models": "choose scaled mended",
    "match_and_rewrite": "pad_stops drop_requantize fold_pad",
    "partition_for_an_accelerator": "addition_pattern bill",
    "tune_a_model": "search_space wins servers",
    "deploy_from_the_command_line": "words damaged_files data_begin",
    "find_where_the_time_goes": "whose holes gain",
    "move_from_relay_to_relax": "dense_pattern drop_one blocked",
    "recipes": "largest as_input",
}
_FROM = {f"check_{name}": module for module, names in _CHECKS.items() for name in names.split()}

__all__ = sorted(_FROM)


def __getattr__(name: str) -> Callable[..., None]:
    """Import the module of a check when the check is first asked for."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check: Callable[..., None] = getattr(import_module(f".{_FROM[name]}", __name__), name)
    return check
