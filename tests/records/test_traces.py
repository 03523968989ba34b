"""Traces from a file: replayed as they were written, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.script import tirx as T

from tests.records import records as helpers
from tests.records.records import MODULE
from tvmlab.errors import RecordError
from tvmlab.records.traces import as_data, replay
from tvmlab.schedule.machine import DOTS


@T.prim_func(s_tir=True)
def transposed(a: T.handle, b: T.handle) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (8, 4))
    B = T.match_buffer(b, (1, 4, 8))
    for i, j, k in T.grid(1, 4, 8):
        with T.sblock("transposed"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[vk, vj]


@pytest.mark.parametrize("number", range(6))
def test_a_trace_is_replayed_as_tvm_does_it(number):
    trace = helpers.traces()[number]
    read = json.loads(json.dumps(trace))
    sch = replay(MODULE, read)
    assert as_data(sch.trace) == trace
    peer = s_tir.Schedule(MODULE)
    s_tir.schedule.Trace.apply_json_to_schedule(trace, peer)
    assert tvm_ffi.structural_equal(sch.mod, peer.mod)


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


def test_axes_are_left_out_and_change_places():
    module = tvm.ir.IRModule({"main": transposed})
    made = s_tir.Schedule(module)
    made.transform_block_layout(made.get_sblock("transposed"), lambda i, j, k: [k, j])
    trace = as_data(made.trace)
    sch = replay(module, trace)
    assert tvm_ffi.structural_equal(sch.mod, made.mod)


@pytest.mark.parametrize("number", [1, 5])
def test_a_replayed_schedule_computes_the_same(number):
    sch = replay(MODULE, helpers.traces()[number])
    np.testing.assert_allclose(helpers.run(sch.mod), helpers.run(MODULE), rtol=1e-4, atol=1e-4)
