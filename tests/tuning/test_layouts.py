"""Layouts that tasks of one operator share: how one is chosen, and what takes its place."""

import pytest

from tests.tuning.searches import TARGET, FakeMeasurer, loops, matmul, run, variant
from tvmlab.records.entries import workload_id
from tvmlab.records.records import Records
from tvmlab.tuning.extract import Task
from tvmlab.tuning.kernels import Measure


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


@pytest.mark.parametrize("other", [0.8, 1.3])
def test_a_layout_that_is_worse_than_what_was_found_does_not_take_its_place(tmp_path, other):
    """The first run did not try layouts; a second one does, and the first one's winner stays."""
    path, one = tmp_path / "r", packed()
    plain = Task(one.name, one.operator, TARGET, 1, one.flops, one.variants[:1])

    def time(kernel):
        own, rule = int(kernel["main"].params[0].shape[1]) == 8, len(loops(kernel)) == 3
        return 1e-3 * ((1 if rule else 0.5) if own else other)

    run([plain], path, FakeMeasurer(time=time), trials=8)
    for how in (Measure(), Measure(number=5)):  # the same results count, or none of them
        run([one], path, FakeMeasurer(time=time, options=how), trials=16, tuner="random")
        found = Records(path).verdict(workload_id(one.variants[0].module), TARGET)
        assert (found.layout, found.ratio) == ("", pytest.approx(0.5))
