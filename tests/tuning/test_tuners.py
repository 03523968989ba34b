"""The tuners: what they propose, and what the model learns."""

import sys
import threading

import numpy as np
import pytest
from tvm.s_tir import meta_schedule as ms

from tests.tuning.searches import (
    TARGET,
    FakeMeasurer,
    default_time,
    loops,
    matmul,
    metaschedule_spaces,
    metaschedule_task,
)
from tvmlab.errors import ToolchainError, TuningError
from tvmlab.records.records import Records
from tvmlab.tuning.search.context import identity, make_context
from tvmlab.tuning.search.model import TUNERS, Learned, find_tuner
from tvmlab.tuning.session import tune_tasks


def rounds(tuner: str, seed: int, count: int = 2, time=default_time) -> list[list]:
    """Let a tuner propose batches of eight and learn from them."""
    module = matmul(64)
    how = find_tuner(tuner)
    strategy = how.strategy()
    model = how.model(seed) if how.model else None
    context = make_context(module, TARGET, strategy=strategy, seed=seed)
    database = ms.database.MemoryDatabase()
    workload = database.commit_workload(module)
    context.pre_tuning(1000, 8, metaschedule_spaces(module, TARGET), database, model)
    batches = []
    for _ in range(count):
        batch = strategy.generate_measure_candidates()
        results = [ms.runner.RunnerResult([time(one.sch.mod)], None) for one in batch]
        if model is not None:
            model.update(context, batch, results)
        for one, result in zip(batch, results, strict=True):
            database.commit_tuning_record(
                ms.database.TuningRecord(
                    one.sch.trace, workload, result.run_secs, TARGET, one.args_info
                )
            )
        strategy.notify_runner_results(batch, results)
        batches.append(batch)
    return batches


def test_the_names_and_the_old_classes():
    """AutoTVM's four tuners by their names."""
    assert {name: tuner.was for name, tuner in TUNERS.items()} == {
        "xgb": "XGBTuner",
        "ga": "GATuner",
        "random": "RandomTuner",
        "gridsearch": "GridSearchTuner",
    }
    with pytest.raises(TuningError, match="'xbg'") as error:
        find_tuner("xbg")
    assert all(name in str(error.value) for name in TUNERS)


@pytest.mark.parametrize("tuner", list(TUNERS))
def test_a_seed_decides_all_candidates(tuner):
    """With times that the kernels decide, whole runs repeat; a seed matters unless it is a grid."""
    first, again, other = (
        [[identity(one.sch.mod) for one in batch] for batch in rounds(tuner, seed)]
        for seed in (5, 5, 6)
    )
    assert first == again
    assert (first == other) is (tuner == "gridsearch")


def unrolled_time(kernel) -> float:
    """A time that a model can learn: short vectors are slow."""
    lanes = max((extent for kind, extent in loops(kernel) if kind == "VECTORIZED"), default=1)
    return 1e-3 * (1 + abs(np.log2(lanes) - 4))


def test_the_model_learns():
    """After some batches, predictions of kernels that it has not seen rank as their times do."""
    module = matmul(64)
    spaces = metaschedule_spaces(module, TARGET)
    strategy = TUNERS["random"].strategy()
    context = make_context(module, TARGET, strategy=strategy, seed=1)
    context.pre_tuning(1000, 64, spaces)
    model = Learned(0)
    seen = strategy.generate_measure_candidates()
    untrained = model.predict(context, seen)
    assert len(untrained) == len(seen)
    assert np.all((untrained > 0) & (untrained <= 1))
    results = [ms.runner.RunnerResult([unrolled_time(one.sch.mod)], None) for one in seen]
    model.update(context, seen, results)
    strategy.notify_runner_results(seen, results)
    new = strategy.generate_measure_candidates()
    times = np.array([unrolled_time(one.sch.mod) for one in new])
    said = model.predict(context, new)
    ranks = [np.argsort(np.argsort(values)) for values in (said, -times)]
    assert np.corrcoef(ranks)[0, 1] > 0.6
    assert np.all(said > 0)


@pytest.mark.parametrize("tuner", ["xgb", "ga"])
def test_guided_tuners_beat_the_first_draw(tuner, tmp_path):
    """On a smooth problem the last candidates are better than the first, on average."""
    report = tune_tasks(
        [metaschedule_task()],
        FakeMeasurer(time=unrolled_time),
        Records(tmp_path / "r.jsonl"),
        trials=64,
        tuner=tuner,
        progress=False,
    )
    times = report.tasks[0].times[1:]
    assert np.mean(times[-16:]) < 0.8 * np.mean(times[:16])


def test_a_thread_may_tune(tmp_path):
    """Python is called back from within MetaSchedule: in no thread does that hang."""
    done = []

    def work() -> None:
        tune_tasks(
            [metaschedule_task()],
            FakeMeasurer(),
            Records(tmp_path / "r.jsonl"),
            trials=20,
            progress=False,
        )
        done.append(True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=120)
    assert done == [True]


def test_xgboost_may_be_missing(monkeypatch):
    """The error says what to install; the other tuners do without."""
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ToolchainError, match=r"tvmlab\[tune\]"):
        find_tuner("xgb")
    assert find_tuner("ga").name == "ga"
