"""The tuners by AutoTVM's names, and the cost models that guide them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.cost_model import PyCostModel, XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import PackSum, XGBConfig
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

from ...errors import TuningError
from ...support.extras import need
from .context import identity
from .grid import GridSearch

__all__ = ["TUNERS", "Learned", "Measured", "Tuner", "find_tuner"]

ROUNDS = 80
"""Trees of the model: at a learning rate of 0.2, what is left of the error is below the noise."""

LEAST_WEIGHT = 0.1
"""What a slow or failed candidate weighs, where the fastest weighs 1."""

FLOOR = 1e-3
"""The least score: parents are drawn in proportion to scores, which must not all be 0."""


@derived_object
class Learned(XGBModel._cls):  # type: ignore[misc, name-defined]
    """MetaSchedule's XGBoost model, with a fixed number of trees.

    The features are MetaSchedule's, one vector for each store of the lowered function, and so is
    the form: the sum over a function's stores is its throughput relative to the best known.
    Upstream trains until fifty trees in a row bring nothing, up to ten thousand, and evaluates two
    metrics in Python after each. The data of one task is small, so here the number of trees is
    fixed. Upstream weighs a candidate by its throughput, so that those that
    failed, with none, are not learnt at all; here they weigh something.

    Parameters
    ----------
    seed : int
        Where scores come from until something was measured, and the trees' own random choices.
    """

    def __init__(self, seed: int = 0) -> None:
        # One thread: idle threads of a pool would spin beside what is measured next.
        super().__init__(config=XGBConfig(seed=seed, nthread=1), num_warmup_samples=0)
        self.extractor: Any = _Features(PerStoreFeature())
        self.random = np.random.default_rng(seed)

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Predict throughputs relative to the best known, about 0 to 1; random before training."""
        if self.booster is None:
            return self.random.uniform(FLOOR, 1.0, len(candidates))
        found = self.extractor.extract_from(context, candidates)
        features = [np.asarray(one.numpy(), "float32") for one in found]
        scores = np.full(len(features), FLOOR)
        known = [index for index, one in enumerate(features) if len(one)]
        if known:  # a function that could not be lowered has no features
            scores[known] = self._predict([features[index] for index in known])
        floored: np.ndarray = np.maximum(scores, FLOOR)
        return floored

    def _train(self, xs: list[np.ndarray], ys: np.ndarray) -> None:
        import xgboost

        packed = PackSum(xs=xs, ys=ys)
        self.booster = xgboost.train(
            self.config.to_dict(),
            packed.dmatrix,
            num_boost_round=ROUNDS,
            obj=lambda predicted, _: _loss(packed, predicted),
        )


def _loss(packed: PackSum, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give gradient and curvature of the weighted squares, for each store of each function."""
    labels = packed.dmatrix.get_label()
    weights = np.maximum(labels, LEAST_WEIGHT)
    return (packed.predict_with_score(predicted)[packed.ids] - labels) * weights, weights


class _Features:
    """MetaSchedule's features of candidates, cached because each one costs a lowering."""

    def __init__(self, extractor: Any) -> None:
        self.extractor = extractor
        self.known: dict[int, Any] = {}

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Any]:
        """Give a tensor of one row a store for each candidate."""
        names = [identity(candidate.sch.mod) for candidate in candidates]
        new = {
            name: candidate
            for name, candidate in zip(names, candidates, strict=True)
            if name not in self.known
        }
        found = self.extractor.extract_from(context, list(new.values())) if new else []
        self.known.update(zip(new, found, strict=True))
        return [self.known[name] for name in names]


@derived_object
class Measured(PyCostModel):  # type: ignore[misc]
    """No model: what was measured scores by its throughput, what was not is drawn by lot.

    An evolutionary search over it is a genetic algorithm whose parents are chosen by
    measurements alone.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.times: dict[int, float] = {}

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Remember times."""
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                times = [float(one) for one in result.run_secs]
                self.times[identity(candidate.sch.mod)] = float(np.median(times))

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        """Score candidates: up to 1 where measured, below 0.1 where not."""
        scores = self.random.uniform(FLOOR, 0.1, len(candidates))
        best = min(self.times.values(), default=0.0)
        for index, candidate in enumerate(candidates):
            time = self.times.get(identity(candidate.sch.mod))
            if time is not None:
                scores[index] = best / time
        return scores

    def load(self, path: str) -> None:
        """Refuse: times come from records."""
        raise NotImplementedError

    def save(self, path: str) -> None:
        """Refuse: times are kept in records."""
        raise NotImplementedError


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
    """Return the tuner of a name; raise TuningError or ToolchainError if there is none."""
    if not isinstance(name, str) or name not in TUNERS:
        raise TuningError(
            f"there is no tuner named {name!r}",
            fix=f"take one of these: {', '.join(TUNERS)}",
        )
    if name == "xgb":
        need("xgboost", extra="tune")
    return TUNERS[name]
