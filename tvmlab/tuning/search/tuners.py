"""The tuners by the names that AutoTVM gave them, made of MetaSchedule's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm.s_tir import meta_schedule as ms

from ...errors import TuningError
from ...support.extras import need
from .grid import GridSearch
from .model import Learned, Measured

__all__ = ["TUNERS", "Tuner", "find_tuner"]


@dataclass(frozen=True)
class Tuner:
    """How candidates are proposed, and what learns from the measured ones.

    Attributes
    ----------
    name : str
        As ``tvmlab.tune(tuner=...)`` takes it.
    was : str
        The class of AutoTVM (``tvm.autotvm.tuner``, gone since TVM 0.20) that it stands for.
    strategy : callable
        Makes a search strategy of MetaSchedule's.
    model : callable or None
        Makes a cost model from a seed; None where nothing learns.
    repeats : bool
        Whether it may propose what it proposed before.
    """

    name: str
    was: str
    strategy: Callable[[], Any]
    model: Callable[[int], Any] | None
    repeats: bool = True


def _xgb() -> Any:
    """Evolve from the best for three generations, guided by the model: ``XGBTuner``.

    Upstream evolves 512 candidates four times for each batch, and computes features of all of them.
    Most are never measured, so here the population is smaller.
    """
    return ms.search_strategy.EvolutionarySearch(
        population_size=40,
        init_measured_ratio=0.4,
        init_min_unmeasured=8,
        genetic_num_iters=3,
        eps_greedy=0.1,
    )


def _ga() -> Any:
    """Evolve from the measured best, one generation between measurements: ``GATuner``."""
    return ms.search_strategy.EvolutionarySearch(
        population_size=32,
        init_measured_ratio=0.5,
        init_min_unmeasured=8,
        genetic_num_iters=1,
        eps_greedy=0.0,
    )


def _random() -> Any:
    """Draw all decisions anew each time: ``RandomTuner``."""
    return ms.search_strategy.ReplayTrace(max_fail_count=20)


TUNERS = {
    tuner.name: tuner
    for tuner in (
        Tuner("xgb", "XGBTuner", _xgb, Learned),
        Tuner("ga", "GATuner", _ga, Measured),
        Tuner("random", "RandomTuner", _random, None),
        Tuner("gridsearch", "GridSearchTuner", GridSearch, None, repeats=False),
    )
}
"""The tuners by name."""


def find_tuner(name: str) -> Tuner:
    """Look a tuner up.

    Parameters
    ----------
    name : str
        ``"xgb"``, ``"ga"``, ``"random"`` or ``"gridsearch"``.

    Returns
    -------
    Tuner

    Raises
    ------
    TuningError
        There is none of that name.
    ToolchainError
        It needs a package that is not installed.
    """
    if not isinstance(name, str) or name not in TUNERS:
        raise TuningError(
            f"there is no tuner named {name!r}",
            fix=f"take one of these: {', '.join(TUNERS)}",
        )
    if name == "xgb":
        need("xgboost", extra="tune")
    return TUNERS[name]
