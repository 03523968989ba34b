"""One task: rules, search, duel, and what records do to them."""

import itertools
import math
from dataclasses import replace

import pytest

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
from tvmlab.errors import TuningError
from tvmlab.records.entries import workload_id
from tvmlab.records.file import Records
from tvmlab.tuning.kernels import Measure, Outcome
from tvmlab.tuning.search.context import identity
from tvmlab.tuning.tasksearch import FLIPS, ROUNDING, same_answer


def test_the_three_stages(tmp_path):
    """The rule is measured first, then candidates, then the best meet the rule."""
    path = tmp_path / "r.jsonl"
    one = task()
    report, measurer = run([one], path, trials=12, tuner="gridsearch")
    named = workload_id(one.variants[0].module)
    results = Records(path).results(named)
    assert [r.origin for r in results] == ["rule"] + ["search"] * 11
    assert measurer.duels == [4, 2, 2, 2]
    (found,) = report.tasks
    assert (found.trials, found.rule, found.ended) == (12, 1e-3, "all trials are done")
    assert found.tuned == pytest.approx(min(found.times))
    best = Records(path).best(named, TARGET)
    assert best == Records(path).verdict(named, TARGET)
    assert best.trace == min(results, key=lambda result: result.seconds).trace
    assert best.ratios == pytest.approx((found.ratio,) * 3)
    assert best.rule == 1e-3


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random", "gridsearch"])
def test_a_small_space_is_searched_whole_and_once(tuner, tmp_path):
    """All of a space of 18 are measured, each once; then the search ends and says so."""
    module = matmul(4, 4, 4)
    one = task(4, variants=[variant(module)])
    report, measurer = run([one], tmp_path / "r.jsonl", trials=200, tuner=tuner)
    names = [identity(kernel) for kernel in measurer.kernels]
    assert len(names) == len(set(names)) == 1 + 18
    assert report.tasks[0].ended == "no candidates are left in the space"


@pytest.mark.parametrize("tuner", ["xgb", "gridsearch"])
def test_a_second_run_goes_on(tuner, tmp_path):
    """What is in the file counts as trials and is not measured again."""
    path = tmp_path / "r.jsonl"
    first, before = run([task(64)], path, trials=12, tuner=tuner)
    second, after = run([task(64)], path, trials=20, tuner=tuner)
    assert len(before.kernels) == 12
    assert len(after.kernels) == 8
    names = [identity(kernel) for kernel in [*before.kernels, *after.kernels]]
    assert len(set(names)) == 20
    assert second.tasks[0].times[:12] == first.tasks[0].times
    assert second.measured == 8
    third, idle = run([task(64)], path, trials=20, tuner=tuner)
    assert (idle.kernels, idle.duels, third.measured) == ([], [], 0)
    assert third.tasks[0].tuned == second.tasks[0].tuned
    assert third.tasks[0].ratio == second.tasks[0].ratio


def test_a_wrong_answer_never_wins(tmp_path):
    """Kernels that compute something else are errors, however fast; the right ones win."""
    path = tmp_path / "r.jsonl"

    def time(kernel):
        extents = [extent for _, extent in loops(kernel)]
        return 1e-3 if len(extents) == 3 else 1e-6 * extents[0]

    def answer(kernel):
        extents = [extent for _, extent in loops(kernel)]
        even = len(extents) == 3 or extents[0] > 2
        return (100.0, 1.0) if even else (100.0, 1.2)

    report, _ = run(
        [task()], path, FakeMeasurer(time=time, answer=answer), trials=41, tuner="gridsearch"
    )
    (found,) = report.tasks
    assert found.errors
    assert set(found.errors) == {"Its result differs from that of the rule's schedule."}
    best = Records(path).best(workload_id(task().variants[0].module), TARGET)
    assert best is not None
    assert best.ratio == pytest.approx(4e-3)


@pytest.mark.parametrize(
    ("answer", "allowed", "same"),
    [
        ((100.0, 1.0), [ROUNDING], True),
        ((100.09, 1.09), [ROUNDING], True),
        ((100.0, 1.2), [ROUNDING], False),
        ((math.nan, 1.0), [ROUNDING], False),
        ((100.0, 1.0000001), [0.0], False),
        ((100.0005, 1.0005), [FLIPS], True),
        ((100.01, 1.0), [FLIPS], False),
        ((100.0, 1.0), [ROUNDING, ROUNDING], False),
    ],
)
def test_answers_are_compared(answer, allowed, same):
    """Up to rounding, relative to the magnitudes; integers exactly; NaN is no agreement."""
    assert same_answer(answer, (100.0, 1.0), allowed) is same


def test_all_candidates_fail(tmp_path):
    """Tuning fails, with the first errors, each once."""
    count = itertools.count()

    def time(kernel):
        return 1e-3 if len(loops(kernel)) == 3 else f"trouble {next(count) // 4}"

    with pytest.raises(TuningError, match="every candidate failed in 1 of 1 task") as error:
        run([task()], tmp_path / "r.jsonl", FakeMeasurer(time=time), trials=64, tuner="random")
    assert "matmul: trouble 0\n    matmul: trouble 1\n" in str(error.value)
    assert "trouble 5" not in str(error.value)
    assert next(count) < 40  # it gives up before all trials are spent
    nothing = FakeMeasurer(time=lambda kernel: "no compiler")  # not even for the rule
    with pytest.raises(TuningError, match="no compiler"):
        run([task()], tmp_path / "n.jsonl", nothing, trials=4, tuner="random")


def test_the_rule_fails_and_candidates_run(tmp_path):
    """Where the rule's schedule does not run, the fastest that does is taken, without a duel."""

    def time(kernel):
        return "too big" if len(loops(kernel)) == 3 else default_time(kernel)

    path = tmp_path / "r.jsonl"
    report, measurer = run([task()], path, FakeMeasurer(time=time), trials=9, tuner="random")
    assert measurer.duels == []
    assert report.tasks[0].rule == math.inf
    assert report.tasks[0].tuned == min(report.tasks[0].times)
    best = Records(path).best(workload_id(task().variants[0].module), TARGET)
    assert best is not None
    assert best.rule == 0
    fastest = min(Records(path).results(best.workload), key=lambda result: result.seconds)
    assert best.trace == fastest.trace


def lucky(_, found: list[Outcome]) -> list[Outcome]:
    """The winner of the first duel gains nothing in the finals."""
    if len(found) == 2:
        found[1] = replace(found[1], times=(0.99e-3,) * len(found[1].times))
    return found


@pytest.mark.parametrize(
    "measurer",
    [
        FakeMeasurer(time=lambda kernel: 1e-3 if len(loops(kernel)) == 3 else 0.99e-3),
        FakeMeasurer(fought=lucky),
    ],
)
def test_nothing_better_is_found(tmp_path, measurer):
    """Where no candidate wins, not in further processes either, the rule stays."""
    path = tmp_path / "r.jsonl"
    report, _ = run([task()], path, measurer, trials=9, tuner="random")
    assert measurer.duels[0] == 4
    assert report.tasks[0].ratio == 1.0
    best = Records(path).best(workload_id(task().variants[0].module), TARGET)
    assert best is not None
    assert best.stays
    assert all(ratio == pytest.approx(0.99) for ratio in best.ratios)


def test_results_that_were_measured_in_another_way_do_not_count(tmp_path):
    """Nor do those of another machine; how often and how long something was measured may differ."""
    path = tmp_path / "r.jsonl"
    run([task()], path, trials=6, tuner="random")
    for other, count in (
        (FakeMeasurer(options=Measure(cache_flush=False)), 6),
        (FakeMeasurer(processor="Z80"), 6),
        (FakeMeasurer(options=Measure(repeat=3, timeout=1.0)), 0),
    ):
        run([task()], path, other, trials=6, tuner="random")
        assert len(other.kernels) == count


def test_early_stopping(tmp_path):
    """The search ends after that number of trials without a better one."""
    report, measurer = run(
        [task(64)],
        tmp_path / "r.jsonl",
        FakeMeasurer(time=lambda kernel: 1e-3),
        trials=400,
        early_stopping=16,
        tuner="random",
    )
    assert report.tasks[0].ended.startswith("nothing better in")
    assert 17 <= len(measurer.kernels) <= 33
