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


def test_the_cases_are_of_every_kind() -> None:
    """A selection that lost a way of computing would still pass."""
    cases = [golden.read(name) for name in golden.names()]
    assert {case.op for case in cases} == {
        *("quantize", "dequantize", "requantize", "conv2d", "dense"),
        *("add", "subtract", "mul", "concatenate"),
    }
    ways = {
        (case.arguments["rounding"], case.arguments["compute_dtype"])
        for case in cases
        if case.op == "requantize"
    }
    assert ways == {
        (a, b) for a in ("UPWARD", "TONEAREST") for b in ("int64", "float32", "float64")
    }


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("046_requantize.npz", {"rounding": "UPWARD"}),
        ("008_requantize.npz", {"rounding": "TONEAREST"}),
    ],
)
def test_the_other_rounding_is_seen(name: str, other: dict[str, str]) -> None:
    """The inputs hold half-way cases, which tell the roundings apart."""
    case = golden.read(name)
    case.arguments |= other
    assert (golden.computed(case) != case.expected).any()
