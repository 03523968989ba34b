"""Indices below zero and out of range in Relay's operators, compared with NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

import tvmlab
from tests.ir.indices import SCHEDULES, Call, X, agree, drawn


def relay(call: str) -> tvm.IRModule:
    return tvmlab.load(
        f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(5, 4), float32], '
        f"%i: Tensor[(2, 4), int64]) {{ {call} }}".encode()
    )


BY_RELAY: dict[str, tuple[str, Call]] = {
    "clip": ("take(%x, %i, axis=0)", lambda x, i: np.take(x, i, 0, mode="clip")),
    "wrap": ('take(%x, %i, axis=0, mode="wrap")', lambda x, i: x[i % len(x)]),
    "fast": ('take(%x, %i, axis=0, mode="fast")', lambda x, i: np.take(x, i, 0)),
    "flat": ('take(%x, %i, mode="fast")', np.take),
    "gather": ("gather(%x, %i, axis=0)", lambda x, i: np.take_along_axis(x, i, 0)),
    "gather_nd": ("gather_nd(%x, %i)", lambda x, i: x[tuple(i)]),
}


@functools.cache
def relay_executable(name: str, schedule: bool) -> Call:
    return tvmlab.compile(relay(BY_RELAY[name][0]), schedule=schedule)


@SCHEDULES
@pytest.mark.parametrize("name", BY_RELAY)
@settings(max_examples=30)
@given(data=st.data())
def test_indices_of_relay(name: str, schedule: bool, data: st.DataObject) -> None:
    agree(relay_executable(name, schedule), BY_RELAY[name][1], X[0], drawn(data, (2, 4)))
