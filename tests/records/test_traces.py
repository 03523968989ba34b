"""Traces from a file: replayed as they were written, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.records import records as helpers
from tests.records.records import MODULE
from tvmlab.errors import RecordError
from tvmlab.records.entries import replay
from tvmlab.schedule.machine import DOTS

WRONG = {
    "nothing": None,
    "text": "trace",
    "instruction of three": [[["GetSBlock", [], []]], []],
    "unknown instruction": [[["Explode", [], [], []]], []],
    "undefined variable": [[["Parallel", ["y"], [], []]], []],
    "another function's block": [[["GetSBlock", [], ["nobody", "main"], ["x"]]], []],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_trace_is_refused(name):
    with pytest.raises(RecordError, match="a trace cannot be applied: "):
        replay(MODULE, WRONG[name])


def test_an_own_intrinsic_is_replayed():
    dot = next(dot for dot in DOTS if dot.llvm == "llvm.x86.sse2.pmadd.wd")
    module = tvm.IRModule({"main": dot.description().with_attr("global_symbol", "main")})
    trace = [
        [
            ["GetSBlock", [], ["update", "main"], ["b"]],
            ["GetLoops", ["b"], [], ["l1", "l2"]],
            ["Tensorize", ["l1"], [f"tvmlab.{dot.llvm}", True], []],
        ],
        [],
    ]
    assert "call_llvm_pure_intrin" in replay(module, trace).mod.script()


@pytest.mark.parametrize("number", [1, 5])
def test_a_replayed_schedule_computes_the_same(number):
    sch = replay(MODULE, helpers.traces()[number])
    np.testing.assert_allclose(helpers.run(sch.mod), helpers.run(MODULE), rtol=1e-4, atol=1e-4)
