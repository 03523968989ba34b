"""Quantized convolutions and matrix products with random parameters, on data of the full range."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.dot import (
    QuantizedConv,
    QuantizedDense,
    quantized_convs,
    quantized_denses,
)
from tests.schedule.kernels import wrong
from tests.short import examples

# Modules of 10 operators: compiling one with many costs less than many with one.
MODULES, EACH = 8, 10


@settings(max_examples=examples(MODULES), deadline=None)
@given(convs=st.lists(quantized_convs(), min_size=EACH, max_size=EACH))
def test_convolutions_are_exact(convs: list[QuantizedConv]) -> None:
    assert not wrong(convs)


@settings(max_examples=3, deadline=None)
@given(denses=st.lists(quantized_denses(), min_size=EACH, max_size=EACH))
def test_matrix_products_are_exact(denses: list[QuantizedDense]) -> None:
    assert not wrong(denses)
