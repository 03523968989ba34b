"""The tuners: what they propose, what the model learns, and the points of the grid."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

from tests.tuning.searches import (
    TARGET,
    FakeMeasurer,
    loops,
    matmul,
    metaschedule_spaces,
    metaschedule_task,
    run,
    tiled,
)
from tvmlab.errors import ToolchainError
from tvmlab.tuning.search.context import identity, make_context
from tvmlab.tuning.search.grid import GridSearch, factorizations, points, size
from tvmlab.tuning.search.model import find_tuner


@pytest.mark.parametrize("tuner", ["xgb", "ga", "random"])
def test_a_seed_decides_all_candidates(tuner, tmp_path):
    """With times that the kernels decide, whole runs repeat."""
    runs = []
    for place, seed in enumerate((5, 5, 6)):
        path, how = tmp_path / str(place), {"trials": 20, "tuner": tuner, "seed": seed}
        _, measurer = run([metaschedule_task()], path, **how)
        runs.append([identity(kernel) for kernel in measurer.kernels])
    assert runs[0] == runs[1] != runs[2]


def unrolled_time(kernel) -> float:
    """A time that a model can learn: short vectors are slow."""
    lanes = max((extent for kind, extent in loops(kernel) if kind == "VECTORIZED"), default=1)
    return 1e-3 * (1 + abs(np.log2(lanes) - 4))


@pytest.mark.parametrize("tuner", ["xgb", "ga"])
def test_guided_tuners_beat_the_first_draw(tuner, tmp_path):
    """On a smooth problem the last candidates are better than the first, on average."""
    first, last = [], []
    for seed in range(3):
        how = {"trials": 64, "tuner": tuner, "seed": seed}
        measurer = FakeMeasurer(time=unrolled_time)
        report, _ = run([metaschedule_task()], tmp_path / f"{seed}", measurer, **how)
        times = report.tasks[0].times[1:]
        first += times[:16]
        last += times[-16:]
    assert np.mean(last) < 0.8 * np.mean(first)


def test_xgboost_may_be_missing(monkeypatch):
    """The error says what to install; the other tuners do without."""
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ToolchainError, match=r"tvmlab\[tune\]"):
        find_tuner("xgb")
    assert find_tuner("ga").was == "GATuner"


def proposed():
    """Let a random strategy propose its first candidates."""
    module = matmul(64)
    strategy = ms.search_strategy.ReplayTrace()
    context = make_context(module, TARGET, strategy=strategy, seed=3)
    context.pre_tuning(1000, 8, metaschedule_spaces(module, TARGET))
    return list(strategy.generate_measure_candidates())


def test_no_tensor_intrinsics_are_imported_and_nothing_is_logged():
    """A context costs no import of TVM's tensor intrinsics, and its strategy writes no log."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tvmlab.support.importing import leave_pytorch_out\n"
        "leave_pytorch_out()\n"
        "from tests.tuning.test_tuners import proposed\n"
        "assert len(proposed()) == 8\n"
        "print('tvm.s_tir.tensor_intrin' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


def test_layouts_are_left_alone():
    """No post-processing repacks an input: the kernel has the function's parameters as they are."""
    for one in proposed():
        text = one.sch.mod.script()
        assert "layout_transform" not in text
        assert "a_reindex" not in text
        assert any(kind == "PARALLEL" for kind, _ in loops(one.sch.mod))


def decisions(schedule: s_tir.Schedule) -> tuple:
    """What was decided, in the order of the instructions."""
    made = []
    for inst in schedule.trace.insts:
        decision = schedule.trace.get_decision(inst)
        if decision is not None:
            numbers = decision if hasattr(decision, "__len__") else [decision]
            made.append(tuple(int(one) for one in numbers))
    return tuple(made)


def test_factorizations_against_brute_force():
    """All products, and only those, sorted."""
    for extent, parts, innermost in itertools.product(
        (1, 2, 7, 12, 64, 224), (1, 2, 3, 4), (0, 1, 4, 64)
    ):
        divisors = [one for one in range(1, extent + 1) if extent % one == 0]
        expected = tuple(
            factors
            for factors in itertools.product(divisors, repeat=parts)
            if math.prod(factors) == extent and (innermost < 1 or factors[-1] <= innermost)
        )
        assert factorizations(extent, parts, innermost) == expected


def test_all_points_in_order():
    """Every combination comes once, the last decision fastest, and the kernels are those."""
    module = matmul(16, 12, 4)
    space = tiled(module, innermost=8)
    found = [decisions(one) for one in points(module, space)]
    tiles_i = [(2, 8), (4, 4), (8, 2), (16, 1)]
    tiles_j = [(2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    expected = [(i, j, (unroll,)) for i in tiles_i for j in tiles_j for unroll in (0, 1)]
    assert found == expected
    assert size(module, space) == len(expected)
    third = next(itertools.islice(points(module, space), 2, None))
    assert [extent for _, extent in loops(third.mod)] == [2, 8, 3, 4, 4]


def test_choices_may_depend_on_choices():
    """The factors of a loop that came out of a split are those of its own extent."""
    module = matmul(12, 4, 4)
    sch = s_tir.Schedule(module)
    loop, _, _ = sch.get_loops(sch.get_sblock("c"))
    _, inner = sch.split(loop, sch.sample_perfect_tile(loop, 2, 12))
    sch.split(inner, sch.sample_perfect_tile(inner, 2, 12))
    found = {decisions(one) for one in points(module, sch)}
    expected = {
        ((a, b * c), (b, c))
        for a, b, c in itertools.product(range(1, 13), repeat=3)
        if a * b * c == 12
    }
    assert found == expected
    assert len(expected) == 18


def test_points_that_do_not_apply_are_passed_over():
    """A choice that a primitive refuses makes no candidate, and the rest still come."""
    module = matmul(16)
    sch = s_tir.Schedule(module)
    i, _, _ = sch.get_loops(sch.get_sblock("c"))
    factor = sch.sample_categorical([4, 0, 8], [0.25, 0.5, 0.25], decision=0)
    sch.split(i, [factor, None])  # by 0 is refused
    found = list(points(module, sch))
    assert [one is None for one in found] == [False, True, False]
    strategy = GridSearch(make_context(module, TARGET), [sch], 8, set())
    proposed = strategy.generate_measure_candidates()
    assert [decisions(one.sch) for one in proposed] == [((0,),), ((2,),)]
    assert strategy.generate_measure_candidates() is None


def test_spaces_take_turns_and_end():
    """Two spaces of different sizes: a point of each alternately, then the rest, then None."""
    module = matmul(4, 2, 2)
    small, large = tiled(module), tiled(module, parts=3)
    counts = size(module, small), size(module, large)
    assert counts == (3 * 2 * 2, 6 * 3 * 2)
    strategy = GridSearch(make_context(module, TARGET), [small, large], 10, set())
    found = []
    while (batch := strategy.generate_measure_candidates()) is not None:
        assert len(batch) <= 10
        found += [decisions(one.sch) for one in batch]
    assert len(found) == len(set(found)) == sum(counts)
    assert [len(one[0]) for one in found[:6]] == [2, 3, 2, 3, 2, 3]
    assert {len(one[0]) for one in found[24:]} == {3}
