"""Every row of the table: there and back, and the same numbers as NumPy."""

from __future__ import annotations

import pytest
import tvm_ffi
from helpers_relay import EXAMPLES, calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tvmlab.relay.operators  # noqa: F401  (fills the table)
from tvmlab.relay import graph, table

SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@given(data=st.data())
@SETTINGS
def test_what_a_row_writes_reads_back_as_the_same_call(name: str, data: st.DataObject) -> None:
    call = data.draw(calls(name))
    found = table.written(call)
    assert found is not None
    row, operands, attributes = found
    assert row.name == name
    assert set(attributes) == {attribute.name for attribute in row.attributes}
    again = graph.typed(row.read(operands, table.coerce(row, attributes)))
    assert tvm_ffi.structural_equal(again, call), (again, call)
    assert table.written(again)[2] == attributes
