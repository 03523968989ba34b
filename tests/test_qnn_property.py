"""Every quantized operator, rounding, dtype and constness, compiled, has the reference's bits.

Whose bits the reference has is in test_qnn_golden (Relay), test_qnn_litert and
test_qnn_onnx_rounding. Small operators go into one module, because compiling one with many of them
takes less time than many with one.
"""

from __future__ import annotations

import warnings

import pytest
from helpers_qnn import Case, differences
from helpers_qnn_cases import WAYS, Draw, configured, others
from helpers_short import ALL
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tvmlab.qnn.config import requantize_config

# A difference names its operator with all operands, so that nothing is left to shrink.
drawn = settings(max_examples=4 if ALL else 1, phases=[Phase.generate])
SEEDS = st.integers(0, 2**32 - 1)


def part(cases: list[Case], schedule: bool, shift: int = 0) -> list[Case]:
    """Take all operators, or in `make test` every other one: the rest is compiled otherwise."""
    return cases if ALL else cases[(schedule + shift) % 2 :: 2]


@pytest.mark.parametrize("schedule", [True, False], ids=["scheduled", "unscheduled"])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
@drawn
@given(seed=SEEDS)
def test_operators_that_change_scales(way: tuple[str, str], schedule: bool, seed: int) -> None:
    """In a rounding that each call says, or that is configured where the call says none."""
    with requantize_config(rounding=way[0], compute_dtype=way[1]):
        cases = [*configured(Draw(seed, WAYS.index(way)), way)]
        assert not differences(part(cases, schedule, WAYS.index(way)), schedule=schedule)


@pytest.mark.parametrize("schedule", [True, False], ids=["scheduled", "unscheduled"])
@drawn
@given(seed=SEEDS)
def test_the_other_operators(schedule: bool, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sums in int16 can overflow
        assert not differences(part([*others(Draw(seed))], schedule), schedule=schedule)
