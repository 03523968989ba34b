"""Networks and machines drawn at random: the accelerator gives the reference's bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tvmlab
from tests.npu import graphs
from tests.npu.run import run
from tests.qnn import run as qnn_run
from tests.short import examples, fresh
from tvmlab import npu


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def equal(found, wanted):
    for one, other in zip(as_tuple(found), as_tuple(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@seed(fresh(6))
@settings(max_examples=examples(500), deadline=None)
@given(number=st.integers(0, 2**32))
def test_random_networks(number):
    choose = random.Random(number)
    drawn, config = graphs.Drawn(choose), graphs.config(choose)
    cut = npu.partition(drawn.mod, config)
    wanted, _ = qnn_run.run(drawn.mod, *drawn.inputs)
    equal(run(cut, *drawn.inputs), wanted)


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


@pytest.mark.parametrize("number", range(12))
def test_compiled_as_users_do(number):
    choose = random.Random(fresh(number))
    drawn, config = graphs.Drawn(choose), graphs.config(choose)
    cut = npu.partition(drawn.mod, config)
    wanted = tvmlab.compile(drawn.mod)(*drawn.inputs)
    equal(tvmlab.compile(cut, "npu, llvm")(*drawn.inputs), wanted)
