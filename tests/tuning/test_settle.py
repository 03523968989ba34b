"""Verdicts on tasks, and layouts that tasks of one operator share."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule

import tvmlab
from tests.tuning.searches import (
    TARGET,
    FakeMeasurer,
    default_time,
    loops,
    matmul,
    run,
    task,
    variant,
)
from tvmlab.errors import RecordError, TuningError
from tvmlab.records.file import Records
from tvmlab.tuning.extract import Task
from tvmlab.tuning.kernels import Measure, fingerprint


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
        ({"records": 3}, RecordError, "3 is not the path of a file of tuning records"),
    ],
)
def test_what_tune_cannot_be_asked(tmp_path, wrong, error, said):
    """It is refused in words before anything is lowered or measured."""
    with pytest.raises(error, match=said):
        tvmlab.tune(IRModule(), **{"records": tmp_path / "r", "progress": False, **wrong})
    assert not (tmp_path / "r").exists()


def packed(n: int = 16, layout: str = "x4", calls: int = 1, operator: str = "conv:1") -> Task:
    """A task of two variants, told apart by their reductions: 8 the rule's, 4 the other's."""
    variants = (variant(matmul(n, 16, 8)), variant(matmul(n, 16, 4), layout))
    return Task(f"matmul_{n}", operator, TARGET, calls, 2.0 * n * 16 * 8, variants)


def times(others: dict[int, float], search: float = 1.0) -> FakeMeasurer:
    """The rule takes 1 ms, the other layout's rule a part of it by size, candidates a part of both.

    A part of `others` or 1 is what a rule takes; `search` is a candidate's part of its rule.
    """

    def seconds(kernel):
        n, k = (int(size) for size in kernel["main"].params[0].shape)
        rule = 1e-3 if k == 8 else 1e-3 * others[n]
        return rule if len(loops(kernel)) == 3 else rule * search

    return FakeMeasurer(time=seconds)


def decided(path) -> set[str]:
    """The layouts of all verdicts."""
    return {one.layout for one in Records(path).verdicts}


def reductions(measurer: FakeMeasurer) -> set[int]:
    """What tells the layouts of the candidates apart."""
    searched = [kernel for kernel in measurer.kernels if len(loops(kernel)) > 3]
    return {int(kernel["main"].params[0].shape[1]) for kernel in searched}


@pytest.mark.parametrize(
    ("others", "search", "layout", "ratios"),
    [
        # All gain: the heaviest task chooses, and all are searched in its layout.
        ({16: 0.8, 32: 0.9}, 0.9, "x4", [0.72, 0.81]),
        # One task would get slower: the rule's own layout stays for all.
        ({16: 0.5, 32: 1.2}, 1.0, "", [1.0, 1.0]),
        # No candidate wins: what counts is the layout's own rule, which `compile` would take.
        ({16: 0.5, 32: 1.01}, 1.5, "x4", [0.5, 1.01]),
    ],
)
def test_a_layout_is_chosen_for_all_tasks_of_an_operator(tmp_path, others, search, layout, ratios):
    tasks = [packed(16, calls=50), packed(32)]
    measurer = times(others, search)
    report, _ = run(tasks, tmp_path / "r", measurer, trials=8, tuner="random")
    assert [one.layout for one in report.tasks] == [layout] * 2
    assert [one.ratio for one in report.tasks] == pytest.approx(ratios)
    assert decided(tmp_path / "r") == {layout}
    if layout:
        assert reductions(measurer) == {4}
