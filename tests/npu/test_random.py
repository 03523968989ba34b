"""Networks and machines drawn at random: the accelerator gives the reference's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tvmlab
from tests.npu import graphs
from tests.npu.machine_code import simulated
from tests.oracles.models import as_tuple
from tests.qnn.run import run
from tests.short import examples, fresh
from tvmlab import npu
from tvmlab.npu import Config


def equal(found, wanted):
    for one, other in zip(as_tuple(found), as_tuple(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@seed(fresh(6))
@settings(max_examples=examples(700), deadline=None)
@given(number=st.integers(0, 2**32))
def test_random_networks(number):
    choose = random.Random(number)
    drawn, config = graphs.Drawn(choose), graphs.config(choose)
    if choose.random() < 0.3:  # tiles of a pixel; what does not fit stays on the CPU
        memories = {
            "sram_bytes": choose.randrange(700, 6000),
            "accumulators": choose.randrange(7, 300),
        }
        config = Config(
            rows=choose.choice((3, 8)), columns=choose.choice((4, 16)), lanes=5, **memories
        )
    wanted, _ = run(drawn.mod, *drawn.inputs)
    equal(simulated(npu.partition(drawn.mod, config), *drawn.inputs), wanted)


def test_most_of_them_go_to_the_accelerator():
    """Else the test above would compare the CPU with itself."""
    whole, count, tried = 0, 0, examples(200)
    for number in range(tried):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        covered = npu.coverage(npu.partition(drawn.mod, config))
        whole += not covered.refused
        count += covered.regions > 0
    assert count >= 0.95 * tried
    assert whole >= 0.7 * tried


@pytest.mark.parametrize("number", range(6))
def test_compiled_as_users_do(number):
    choose = random.Random(fresh(number))
    drawn, config = graphs.Drawn(choose), graphs.config(choose)
    cut = npu.partition(drawn.mod, config)
    wanted = tvmlab.compile(drawn.mod)(*drawn.inputs)
    equal(tvmlab.compile(cut, "npu, llvm")(*drawn.inputs), wanted)
