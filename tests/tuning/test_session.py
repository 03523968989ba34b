"""All tasks of a module: whose turn it is, layouts that tasks share, interrupts, the report."""

import math
from collections import Counter

import pytest

from tests.records.records import verdict
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
from tvmlab.records.records import Records
from tvmlab.records.workloads import workload_id
from tvmlab.tuning.report import Report, TaskReport
from tvmlab.tuning.session import Limits
from tvmlab.tuning.task import Task


def size_of(kernel) -> int:
    """The product's size, which tells the tasks of these tests apart."""
    return int(kernel["main"].params[0].shape[0])


def test_each_task_gets_its_trials(tmp_path):
    """Without a limit over all, one task after the other, the heaviest first."""
    tasks = [task(8, "light", calls=1), task(16, "heavy", calls=5), task(32, "middle", calls=2)]
    report, measurer = run(tasks, tmp_path / "r", trials=10, tuner="gridsearch")
    sizes = [size_of(kernel) for kernel in measurer.kernels]
    assert sizes == [8, 16, 32] + [16] * 9 + [32] * 9 + [8] * 9
    assert [one.name for one in report.tasks] == ["heavy", "middle", "light"]
    assert report.measured == 30


def test_trials_over_all_go_where_they_bring_most(tmp_path):
    """The task that is called a hundred times gets most; each is warmed up; the sum is kept."""
    tasks = [task(16, "rare", calls=1), task(32, "often", calls=100), task(64, "rare2", calls=1)]
    report, measurer = run(
        tasks, tmp_path / "r", trials=1000, total_trials=120, tuner="random", early_stopping=1000
    )
    counts = Counter(size_of(kernel) for kernel in measurer.kernels)
    assert sum(counts.values()) == 120
    assert counts[32] > counts[16] + counts[64]
    assert min(counts.values()) > 1
    assert sum(one.trials for one in report.tasks) == 120


def test_earlier_trials_count_over_all(tmp_path):
    """A second run with the same sum measures nothing; with a larger one, the rest."""
    tasks = [task(16, "a"), task(32, "b")]
    run(tasks, tmp_path / "r", total_trials=30, tuner="random")
    _, again = run(tasks, tmp_path / "r", total_trials=30, tuner="random")
    assert again.kernels == []
    _, more = run(tasks, tmp_path / "r", total_trials=40, tuner="random")
    assert len(more.kernels) == 10


def test_fewer_trials_than_tasks(tmp_path):
    """Even a single trial is spent and reported."""
    report, measurer = run([task(8, "a"), task(16, "b")], tmp_path / "r", total_trials=1)
    assert len(measurer.kernels) == 1
    assert [one.trials for one in report.tasks] == [1, 0]
    assert report.before == 1e-3
    assert "b " in str(report)


def test_seconds_end_the_search(tmp_path, monkeypatch):
    """When the time is up no batch starts, and duels are still fought."""
    now = 0.0

    class Slow(FakeMeasurer):
        def measure(self, kernels):
            nonlocal now
            for told in super().measure(kernels):
                now += 0.05
                yield told

    monkeypatch.setattr(Limits, "spent", property(lambda _: now))
    tasks = [task(64, "a"), task(128, "b")]
    report, measurer = run(tasks, tmp_path / "r", Slow(), trials=10**6, seconds=5, tuner="random")
    assert report.seconds == now
    assert 10 < len(measurer.kernels) < 100
    assert measurer.duels == [4, 2, 2, 2] * 2
    assert {one.ended for one in report.tasks} == {"no trials or seconds were left"}


@pytest.mark.parametrize("name", ["trials", "total_trials", "early_stopping", "seconds"])
@pytest.mark.parametrize("value", [0, -1, math.nan, True, "8", [1]])
def test_limits_are_positive(name, value, tmp_path):
    """Nothing is measured for a limit of nothing, nor for what is none."""
    with pytest.raises(TuningError, match=f"{name} is (.|\n)*to do: give one"):
        run([task()], tmp_path / "r", **{name: value})
    assert not (tmp_path / "r").exists()


def test_other_tasks_are_tuned_when_one_fails(tmp_path):
    """The error comes at the end: what the others found is in the records."""

    def outcome(kernel):
        bad = size_of(kernel) == 16 and len(loops(kernel)) > 3
        return "no room" if bad else default_time(kernel)

    tasks = [task(16, "bad", calls=9), task(32, "good")]
    with pytest.raises(TuningError, match=r"1 of 2 tasks[\s\S]*bad: no room") as caught:
        run(tasks, tmp_path / "r", FakeMeasurer(time=outcome), trials=12, tuner="random")
    assert caught.value.report is not None
    bad, good = caught.value.report.tasks
    assert (bad.name, bad.ratio, len(bad.errors)) == ("bad", 1.0, 11)
    assert good.decided
    assert good.ratio < 1
    named = workload_id(tasks[1].variants[0].module)
    assert Records(tmp_path / "r").best(named, TARGET) is not None


# Layouts.


def packed(n: int, m: int, layout: str, calls: int = 1, name: str = "") -> Task:
    """A task of two variants, told apart by their reductions: 8 the rule's, 4 the other's."""
    plain, other = matmul(n, m, 8), matmul(n, m, 4)
    variants = (variant(plain), variant(other, layout))
    return Task(name or f"matmul_{n}", "conv:1", TARGET, calls, 2.0 * n * m * 8, variants)


def decided(path) -> set[str]:
    """The layouts of all verdicts."""
    return {one.layout for one in Records(path).verdicts}


def layout_time(gains: dict[int, float], search: float = 1.0):
    """Times by size: the other layout is `gains` of the rule; found candidates are `search`."""

    def seconds(kernel):
        n, k = size_of(kernel), int(kernel["main"].params[0].shape[1])
        base = 1e-3 if k == 8 else 1e-3 * gains[n]
        return base if len(loops(kernel)) == 3 else base * search

    return seconds


def test_a_layout_that_all_gain_by(tmp_path):
    """The heaviest task chooses, all search it, and it is decided on."""
    tasks = [packed(16, 16, "x4", calls=5), packed(32, 16, "x4")]
    measurer = FakeMeasurer(time=layout_time({16: 0.8, 32: 0.9}, search=0.9))
    report, _ = run(tasks, tmp_path / "r", measurer, trials=8, tuner="random")
    assert decided(tmp_path / "r") == {"x4"}
    assert [one.layout for one in report.tasks] == ["x4", "x4"]
    assert [one.ratio for one in report.tasks] == pytest.approx([0.72, 0.81])
    searched = [kernel for kernel in measurer.kernels if len(loops(kernel)) > 3]
    assert {int(kernel["main"].params[0].shape[1]) for kernel in searched} == {4}


def test_a_layout_that_one_loses_by(tmp_path):
    """One task would get slower: the rule's own layout stays for all, and the report says so."""
    tasks = [packed(16, 16, "x4", calls=5), packed(32, 16, "x4")]
    measurer = FakeMeasurer(time=layout_time({16: 0.5, 32: 1.2}))
    report, _ = run(tasks, tmp_path / "r", measurer, trials=8, tuner="random")
    assert decided(tmp_path / "r") == {""}
    assert [(one.layout, one.ratio) for one in report.tasks] == [("", 1.0), ("", 1.0)]


def test_a_layout_without_a_winner_falls_back_to_its_rule(tmp_path):
    """Where no candidate wins, what counts is the layout's own rule, which compile would take."""
    tasks = [packed(16, 16, "x4", calls=50), packed(32, 16, "x4")]
    measurer = FakeMeasurer(time=layout_time({16: 0.5, 32: 1.01}, search=1.5))
    report, _ = run(tasks, tmp_path / "r", measurer, trials=8, tuner="random")
    assert [one.layout for one in report.tasks] == ["x4", "x4"]
    assert [one.ratio for one in report.tasks] == pytest.approx([0.5, 1.01])


def test_the_rules_own_layout_is_decided_on_too(tmp_path):
    """Where no other layout is faster any more, an older word on another is taken back."""
    path = tmp_path / "r"
    one = packed(16, 16, "x4")
    own, other = (workload_id(each.module) for each in one.variants)
    old = verdict(own, workload=other, layout="x4", operator="conv:1", date="2026-01-01T00:00:00")
    Records(path).append(old)
    assert decided(path) == {"x4"}
    run([one], path, FakeMeasurer(time=layout_time({16: 1.3})), trials=8, tuner="random")
    assert Records(path).verdict(own, TARGET).layout == ""


def test_a_layout_must_be_there_for_all(tmp_path):
    """A layout that one task of the operator lacks is not chosen."""
    tasks = [packed(16, 16, "x4", calls=5), packed(32, 16, "x8")]
    measurer = FakeMeasurer(time=layout_time({16: 0.5, 32: 0.5}))
    report, _ = run(tasks, tmp_path / "r", measurer, trials=8, tuner="random")
    assert {one.layout for one in report.tasks} == {""}


def test_without_an_operator_there_is_no_choice(tmp_path):
    """Only the first variant is tuned where nobody could be told of another."""
    one = packed(16, 16, "x4")
    alone = Task(one.name, "", TARGET, 1, one.flops, one.variants)
    _, measurer = run([alone], tmp_path / "r", trials=8, tuner="random")
    assert {int(kernel["main"].params[0].shape[1]) for kernel in measurer.kernels} == {8}


# Interrupts.


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    """Ctrl-C in the middle of a batch: it is passed on, the file is whole, the next run goes on."""

    class Interrupted(FakeMeasurer):
        def measure(self, kernels):
            for told in super().measure(kernels):
                if len(self.kernels) == 7:
                    raise KeyboardInterrupt
                yield told

    path = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run([task()], path, Interrupted(), trials=20, tuner="random")
    assert len(Records(path)) == 6
    _, measurer = run([task()], path, trials=20, tuner="random")
    assert len(measurer.kernels) == 14


def test_resuming_what_is_done_replays_nothing(tmp_path, monkeypatch):
    """A finished run costs nothing to look at again, however many candidates it had."""
    run([task()], tmp_path / "r", trials=20, tuner="random")

    def never(*_: object) -> None:
        raise AssertionError("a trace was replayed")

    monkeypatch.setattr("tvmlab.tuning.search.known.replay", never)
    report, measurer = run([task()], tmp_path / "r", trials=20, tuner="random")
    assert (measurer.kernels, measurer.duels) == ([], [])
    assert report.tasks[0].ratio < 1


# The report.


def test_the_report_adds_up():
    """Times are weighted by calls; the table has a line a task and one for all."""
    one = TaskReport(
        "conv", 3, 2e6, 2e-3, 1e-3, "x4", "done", ("no",), (2e-3, math.inf, 1e-3), (None,) * 3
    )
    two = TaskReport("dense", 1, 1e6, 1e-3, 1e-3, "", "done", (), (1e-3,), (None,))
    report = Report((one, two), 12.0, 4)
    assert (report.before, report.after) == pytest.approx((7e-3, 4e-3))
    assert one.curve == pytest.approx((1.0, 1.0, 2.0))
    assert (one.ratio, one.gflops, one.trials) == pytest.approx((0.5, 2.0, 3))
    assert str(report).splitlines() == [
        "task   calls  rule ms  tuned ms  ratio  GFLOP/s  trials  errors  layout",
        "conv       3   2.0000    1.0000   0.50      2.0       3       1  x4",
        "dense      1   1.0000    1.0000   1.00      1.0       1       0",
        "all calls: 7.000 ms before, 4.000 ms after (0.57); 4 candidates measured in 12 s",
    ]
    assert "; 1 candidate measured in 12 s" in str(Report((one,), 12.0, 1))


def test_a_run_that_breaks_off_tells_how_far_it_came(tmp_path):
    """The servers are lost, say: the error has the report; where nothing began it has none."""

    class Lost(FakeMeasurer):
        def measure(self, kernels):
            for told in super().measure(kernels):
                if len(self.kernels) == 7:
                    raise TuningError("no server is left")
                yield told

    with pytest.raises(TuningError, match="no server is left") as caught:
        run([task()], tmp_path / "r", Lost(), trials=20, tuner="random")
    assert caught.value.report is not None
    assert caught.value.report.measured == caught.value.report.tasks[0].trials == 6
    assert not caught.value.report.tasks[0].decided
    with pytest.raises(TuningError) as caught:
        run([task()], tmp_path / "r", trials=0)
    assert caught.value.report is None
