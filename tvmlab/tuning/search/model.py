"""The tuners, by AutoTVM's names: MetaSchedule's strategies, and cost models to guide them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model import PyCostModel, XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import PackSum, XGBConfig

from ...errors import TuningError
from ...support.extras import need
from .context import identity

ROUNDS = 80  # trees: at a learning rate of 0.2, the remaining error is below the noise
FLOOR = 1e-3  # Parents are drawn in proportion to scores, which must not all be 0.


@derived_object
class Learned(XGBModel._cls):  # type: ignore[misc, name-defined]
    """MetaSchedule's XGBoost model, with a fixed number of trees and a seed.

    Upstream trains up to ten thousand trees, with two metrics in Python after each.
    """

    def __init__(self, seed: int = 0) -> None:
        # One thread: idle threads of a pool would spin during the next measurement.
        super().__init__(config=XGBConfig(seed=seed, nthread=1), num_warmup_samples=0)
        self.random = np.random.default_rng(seed)

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Predict throughputs relative to the best known, about 0 to 1; random before training."""
        if self.booster is None:
            return self.random.uniform(FLOOR, 1.0, len(candidates))
        floored: np.ndarray = np.maximum(super().predict(context, candidates), FLOOR)
        return floored

    def _train(self, xs: list[np.ndarray], ys: np.ndarray) -> None:
        import xgboost

        packed = PackSum(xs=xs, ys=ys)
        self.booster = xgboost.train(
            self.config.to_dict(),
            packed.dmatrix,
            num_boost_round=ROUNDS,
            obj=lambda predicted, _: packed.obj_square_error(predicted),
        )


@derived_object
class Measured(PyCostModel):  # type: ignore[misc]
    """A cost model: measured candidates score by throughput, others at random, below 0.1.

    An evolutionary search with this model is a genetic algorithm.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.times: dict[int, float] = {}

    def update(self, _context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Remember times."""
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                times = [float(one) for one in result.run_secs]
                self.times[identity(candidate.sch.mod)] = float(np.median(times))

    def predict(self, _context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Score candidates."""
        best = min(self.times.values(), default=0.0)
        drawn = self.random.uniform(FLOOR, 0.1, len(candidates))
        times = [self.times.get(identity(candidate.sch.mod)) for candidate in candidates]
        return np.array([best / t if t else d for t, d in zip(times, drawn, strict=True)])


@dataclass(frozen=True)
class Tuner:
    """A way to propose candidates, and the model that learns from their measurements.

    `was` is the AutoTVM class that it replaces, `strategy` makes a MetaSchedule search
    strategy (None goes through the spaces in order), and `model` makes a cost model from a seed.
    """

    was: str
    strategy: Callable[[], Any] | None
    model: Callable[[int], Any] | None


# Upstream evolves 512 candidates four times per batch, and computes features of all of them.
# Most are never measured, so the populations here are smaller.
_xgb = partial(
    ms.search_strategy.EvolutionarySearch,
    population_size=40,
    init_measured_ratio=0.4,
    init_min_unmeasured=8,
    genetic_num_iters=3,
    eps_greedy=0.1,
)
_ga = partial(
    ms.search_strategy.EvolutionarySearch,
    population_size=32,
    init_measured_ratio=0.9,
    init_min_unmeasured=4,
    genetic_num_iters=1,
    genetic_mutate_prob=0.5,
    eps_greedy=0.0,
)
_random = partial(ms.search_strategy.ReplayTrace, max_fail_count=20)

TUNERS = {
    "xgb": Tuner("XGBTuner", _xgb, Learned),
    "ga": Tuner("GATuner", _ga, Measured),
    "random": Tuner("RandomTuner", _random, None),
    "gridsearch": Tuner("GridSearchTuner", None, None),
}
"""The tuners by name."""


def find_tuner(name: str) -> Tuner:
    """Return the tuner of a name; raise TuningError or ToolchainError if there is no such tuner."""
    if name not in TUNERS:
        raise TuningError(
            f"there is no tuner named {name!r}", fix=f"choose one of: {', '.join(TUNERS)}"
        )
    if name == "xgb":
        need("xgboost", extra="tune")
    return TUNERS[name]
