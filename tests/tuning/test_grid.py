"""The grid search: all points, in order, lazily."""

import itertools
import math

from tvm import s_tir

from tests.tuning.searches import TARGET, loops, matmul, tiled
from tvmlab.tuning.search.context import make_context
from tvmlab.tuning.search.grid import GridSearch, factorizations, points, size


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
