"""All tasks of a module: whose turn it is, layouts that tasks share, interrupts, the report."""

import gc
import math
from collections import Counter

import pytest

from tests.tuning.searches import TARGET, FakeMeasurer, default_time, loops, run, task
from tvmlab.errors import TuningError
from tvmlab.records.entries import workload_id
from tvmlab.records.file import Records
from tvmlab.tuning.report import Report, TaskReport
from tvmlab.tuning.session import tune_tasks
from tvmlab.tuning.tasksearch import Options


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


def test_seconds_end_the_search(tmp_path, monkeypatch):
    """When the time is up no batch starts, and duels are still fought."""
    slow = FakeMeasurer()
    monkeypatch.setattr(Options, "spent", property(lambda _: 0.05 * len(slow.kernels)))
    tasks = [task(64, "a"), task(128, "b")]
    report, _ = run(tasks, tmp_path / "r", slow, trials=10**6, seconds=5, tuner="random")
    assert report.seconds == 0.05 * len(slow.kernels)
    assert 10 < len(slow.kernels) < 100
    assert slow.duels == [4, 2, 2, 2] * 2
    assert {one.ended for one in report.tasks} == {"no trials or seconds were left"}


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


def breaks_off(error: BaseException) -> FakeMeasurer:
    """Raise at the seventh kernel."""

    def told(number: int) -> None:
        if number == 7:
            raise error

    return FakeMeasurer(told=told)


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    """Ctrl-C in the middle of a batch: it is passed on, the file is whole, the next run goes on."""
    path = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run([task()], path, breaks_off(KeyboardInterrupt()), trials=20, tuner="random")
    assert len(Records(path)) == 6
    _, measurer = run([task()], path, trials=20, tuner="random")
    assert len(measurer.kernels) == 14


def test_the_report_adds_up():
    """Times are weighted by calls; the table has a line a task and one for all."""
    one = TaskReport("conv", 3, 2e6, 2e-3, 1e-3, "x4", "done", ("no",), (2e-3, math.inf, 1e-3))
    two = TaskReport("dense", 1, 1e6, 1e-3, 1e-3, "", "done", (), (1e-3,))
    report = Report((one, two), 12.0, 4)
    assert (report.before, report.after) == pytest.approx((7e-3, 4e-3))
    assert (one.ratio, one.gflops, one.trials) == pytest.approx((0.5, 2.0, 3))
    assert str(report).splitlines() == [
        "task   calls  rule ms  tuned ms  ratio  GFLOP/s  trials  errors  layout",
        "conv       3   2.0000    1.0000   0.50      2.0       3       1  x4",
        "dense      1   1.0000    1.0000   1.00      1.0       1       0",
        "all calls: 7.000 ms before, 4.000 ms after (0.57); 4 candidates measured in 12 s",
    ]
    assert "; 1 candidate measured in 12 s" in str(Report((one,), 12.0, 1))


@pytest.mark.parametrize("how", [False, "auto"])
def test_a_whole_run(how, tmp_path, capfd):
    """It prints a few plain lines, or none at all; the error stream stays empty."""
    records = Records(tmp_path / "r")
    gc.collect()  # else TVM may say something about what other tests have left
    capfd.readouterr()
    tune_tasks([task()], FakeMeasurer(), records, trials=12, tuner="xgb", progress=how)
    out, err = capfd.readouterr()
    assert err == ""
    if how is False:
        assert out == ""
    else:
        last, decision = out.splitlines()[-2:]
        assert last.startswith("12/12: matmul 12/12, best ")
        assert decision == "12/12: matmul: comparing the best with the rule"
        assert len(out.splitlines()) < 12
