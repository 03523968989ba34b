"""The last word on tasks: what it needs to be taken back, and what it survives."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule

import tvmlab
from tests.tuning.searches import (
    FakeMeasurer,
    default_time,
    loops,
    run,
    task,
)
from tvmlab.errors import RecordError, TuningError
from tvmlab.tuning import Measure, Records
from tvmlab.tuning.kernels import fingerprint


def test_what_was_decided_meets_the_rule_again(tmp_path):
    """Measured in another way, with few trials: the earlier winner is among those that meet it."""
    path = tmp_path / "r"
    best = lambda kernel: 1e-3 if len(loops(kernel)) == 3 else default_time(kernel)  # noqa: E731
    run([task()], path, FakeMeasurer(time=best), trials=40, tuner="gridsearch")
    first = Records(path).verdicts[-1]
    other = FakeMeasurer(time=best, options=Measure(cache_flush=False))
    report, _ = run([task()], path, other, trials=2, tuner="random")
    second = Records(path).verdicts[-1]
    assert second.trace == first.trace
    assert report.tasks[0].ratio == first.ratio < 0.6


def test_what_was_decided_is_decided_again_when_asked(tmp_path):
    """One verdict, by its task alone: nothing is measured, the best meets the rule, others stay."""
    path, how = tmp_path / "r", {"tuner": "random", "trials": 8}
    pair = [task(16, "a"), task(32, "b")]
    first, _ = run(pair, path, **how)
    before = {one.task: one for one in Records(path).verdicts}
    worse = FakeMeasurer(time=lambda kernel: 1e-3 if len(loops(kernel)) == 3 else 2e-3)
    idle, measurer = run(pair, path, worse, **how)
    assert (measurer.kernels, measurer.duels) == ([], [])
    assert [one.ratio for one in idle.tasks] == [one.ratio for one in first.tasks]
    report, measurer = run(pair[:1], path, worse, again=True, tuner="random", trials=1)
    assert measurer.kernels == []
    assert measurer.duels
    assert (report.tasks[0].ratio, report.tasks[0].decided) == (1.0, True)
    after = {one.task: one for one in Records(path).verdicts}
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    assert after["a"].stays


def test_what_is_no_number_is_compared_too(tmp_path):
    """A rule that gives NaN on the seeded inputs is met by candidates that give it there, too."""
    numbers = np.array([1.0, np.nan, -2.0, np.inf], "float32")
    same = fingerprint([numbers])
    assert np.isfinite(same).all()
    assert fingerprint([numbers.copy()]) == same
    for place in range(4):
        for value in (np.nan, np.inf, -np.inf, 5.0):
            other = numbers.copy()
            other[place] = value
            if not np.array_equal(other, numbers, equal_nan=True):
                assert fingerprint([other]) != same
    build = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float32"))
    with build.function("main", [x]):
        build.emit_func_output(build.emit(relax.op.log(x)))
    how = {
        "trials": 6,
        "tuner": "random",
        "measure": Measure(repeat=2, timeout=60, build_timeout=60),
        "progress": False,
    }
    report = tvmlab.tune(build.finalize(), records=tmp_path / "r", **how)
    assert report.tasks[0].errors == ()


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"trials": 2.5}, TuningError, "trials is 2.5, not a whole number of at least 1"),
        ({"total_trials": 0}, TuningError, "total_trials is 0, not a whole number"),
        ({"early_stopping": True}, TuningError, "early_stopping is True, not a whole number"),
        ({"seconds": float("nan")}, TuningError, "seconds is nan, not a number"),
        ({"seed": "a"}, TuningError, "seed is 'a', not a whole number"),
        ({"tuner": "genetic"}, TuningError, "there is no tuner named"),
        ({"measure": {"number": 3}}, TuningError, "which is not a `Measure`"),
        ({"records": 3}, RecordError, "3 names no file of tuning records"),
    ],
)
def test_what_tune_cannot_be_asked(tmp_path, wrong, error, said):
    """It is refused in words before anything is lowered or measured."""
    with pytest.raises(error, match=said):
        tvmlab.tune(IRModule(), **{"records": tmp_path / "r", "progress": False, **wrong})
    assert not (tmp_path / "r").exists()
