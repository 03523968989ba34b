"""The checks of the notebooks' exercises: they say what is wrong in a learner's terms.

A check is called with what the learner made. It prints ``done: ...`` and what holds now, or
``not yet: ...`` and what to look at: a shape, the first wrong value, the lines in which the IR
differs. It returns nothing and does not raise for a wrong answer. A module holds the checks of one
notebook, and the worked solutions are in ``notebooks/solutions/``.

A check is imported with its own notebook's module only, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

# Where a check comes from.
_FROM = {
    "check_addition_pattern": "partition_for_an_accelerator",
    "check_as_input": "recipes",
    "check_batch": "import_a_resnet",
    "check_bill": "partition_for_an_accelerator",
    "check_blocked": "move_from_relay_to_relax",
    "check_choose": "import_quantized_models",
    "check_crop": "import_a_resnet",
    "check_damaged_files": "deploy_from_the_command_line",
    "check_data_begin": "deploy_from_the_command_line",
    "check_dense_pattern": "move_from_relay_to_relax",
    "check_dequantize": "build_tvm",
    "check_drop_one": "move_from_relay_to_relax",
    "check_drop_requantize": "match_and_rewrite",
    "check_fold_pad": "match_and_rewrite",
    "check_fusion": "start_here",
    "check_gain": "find_where_the_time_goes",
    "check_guard": "schedule_a_computation",
    "check_holes": "find_where_the_time_goes",
    "check_largest": "recipes",
    "check_mended": "import_quantized_models",
    "check_pad_stops": "match_and_rewrite",
    "check_register_tile": "schedule_a_computation",
    "check_round_to_even": "build_tvm",
    "check_scaled": "import_quantized_models",
    "check_search_space": "tune_a_model",
    "check_servers": "tune_a_model",
    "check_tile_choice": "import_a_resnet",
    "check_whose": "find_where_the_time_goes",
    "check_wide_vectors": "start_here",
    "check_wins": "tune_a_model",
    "check_words": "deploy_from_the_command_line",
}

__all__ = sorted(_FROM)


def __getattr__(name: str) -> Callable[..., None]:
    """Import a check when it is first asked for."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: Callable[..., None] = getattr(import_module(f".{_FROM[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the checks, imported or not."""
    return sorted({*globals(), *_FROM})
