"""The reference arithmetic against what the real Relay computed, bit for bit."""

from __future__ import annotations

import pytest

from tests.oracles import golden
from tests.short import beside


def agree(case: golden.Case) -> None:
    golden.check(case, golden.computed(case), ulp=0)


@pytest.mark.parametrize("name", golden.names())
def test_relay_s_results_bit_for_bit(name: str) -> None:
    agree(golden.read(name))


def test_all_of_relay_s_results() -> None:
    folder = beside(golden.WHOLE)
    for name in golden.names(folder):
        agree(golden.read(name, folder))
