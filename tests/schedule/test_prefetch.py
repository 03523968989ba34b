"""Late layers fetch their weights ahead: in the loop that sums, and without changing a result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm

import tvmlab
from tests.schedule.assembly import assembly, inner_loops
from tests.schedule.dot import QuantizedConv
from tests.schedule.kernels import module, wrong

INT8 = QuantizedConv(
    dtypes=("uint8", "int8"),
    zeros=(3, 0),
    batch=1,
    size=(7, 7),
    kernel=(3, 3),
    strides=(1, 1),
    pads=(1, 1, 1, 1),
    dilation=(1, 1),
    groups=1,
    inputs=256,
    outputs=256,
)
CPU = tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"})


def test_weights_are_fetched_while_sums_run() -> None:
    run = tvmlab.compile(module([INT8])[0], CPU)
    assert not run.summary().unscheduled
    bodies = inner_loops(assembly(run))
    fetching = [body for body in bodies if any("prefetch" in line for line in body)]
    assert fetching
    # The instruction does not keep the sums from staying in registers.
    for body in fetching:
        assert sum("vpdpbusd" in line for line in body) >= 14
        assert not [line for line in body if "(%rsp)" in line and "mm" in line]


@pytest.mark.parametrize("case", [INT8, replace(INT8, size=(9, 8), pads=(2, 0, 0, 1))])
def test_results_stay_the_same(case: QuantizedConv) -> None:
    assert not wrong([case])


@pytest.mark.parametrize(
    "case",
    [
        replace(INT8, inputs=32, outputs=32),  # weights that stay in the cache
        replace(INT8, batch=2),  # another picture reads them again
        replace(INT8, groups=2),
    ],
)
def test_others_do_not_fetch(case: QuantizedConv) -> None:
    assert "prefetch" not in assembly(tvmlab.compile(module([case])[0], CPU))
