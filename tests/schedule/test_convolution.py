"""Convolutions with random parameters: the right rule takes each, and PyTorch's numbers result."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.convolutions import Conv, convolutions
from tests.schedule.kernels import wrong
from tests.short import examples

# Modules of 10 convolutions: compiling one with many costs less than many with one.
MODULES, EACH = 52, 10


@settings(max_examples=examples(MODULES))
@given(convs=st.lists(convolutions(), min_size=EACH, max_size=EACH))
def test_convolutions_equal_pytorchs(convs: list[Conv]) -> None:
    assert not wrong(convs)
