"""Traces from a file: replayed as they were written, or refused; and never the end of a process."""

from __future__ import annotations

import copy
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


def _changed(kind, part, value):
    """Change an instruction of a trace."""
    trace = copy.deepcopy(helpers.traces()[1])
    found = next(one for one in trace[0] if one[0] == kind)
    found[part] = value(found[part]) if callable(value) else value
    return trace


def _decided(place, value):
    """Change the decision of the instruction that samples, counted from 0."""
    trace = copy.deepcopy(helpers.traces()[1])
    trace[1][place][1] = value
    return trace


def _with(*instructions):
    """Write instructions behind a trace."""
    trace = copy.deepcopy(helpers.traces()[0])
    return [[*trace[0], *map(list, instructions)], trace[1]]


BLOCK = ["GetSBlock", [], ["product", "main"], ["x"]]
LOOPS = ["GetLoops", ["x"], [], ["x1", "x2", "x3", "x4"]]
HOSTILE = {
    # These end the process in TVM's own reader, or never end.
    "tile of zero": _decided(0, [0, 0, 0]),
    "no decision": [helpers.traces()[1][0], []],
    # Shapes of JSON.
    "nothing": None,
    "text": "trace",
    "instruction of three": [[["GetSBlock", [], []]], []],
    "unknown kind": [[["Explode", [], [], []]], []],
    "too many": [[[*BLOCK[:3], [f"b{i}"]] for i in range(3000)], []],
    "decision of nobody": [helpers.traces()[1][0], [[999, 1]]],
    # Values of a wrong kind.
    "loop for a block": _with(BLOCK, LOOPS, ["ComputeInline", ["x1"], [], []]),
    "undefined": _with(["Parallel", ["y"], [], []]),
    "split by zero": _changed("Split", 1, lambda given: [given[0], 0, 32, 1]),
    "split by a billion": _changed("Split", 1, lambda given: [given[0], 10**9, None, 10**9]),
    "another block": _changed("GetSBlock", 2, ["nobody", "main"]),
    "attributes as a text": _changed("Split", 2, "ab"),
    "index far away": _changed("CacheRead", 2, [10**6, "global"]),
    "a billion tiles": _changed("SamplePerfectTile", 2, [10**9, 16]),
    "parallel sum": _with(BLOCK, LOOPS, ["Parallel", ["x4"], [], []]),
    # What could change what is computed, or how long it takes to compile.
    "without predicates": _changed("Split", 2, [True, True]),
    "dtype": _with(BLOCK, ["UnsafeSetDType", ["x"], [0, '"float16"'], []]),
    "scope": _with(BLOCK, ["SetScope", ["x"], [0, "shared"], []]),
    "bound": _with(BLOCK, LOOPS, ["Bind", ["x1"], ["threadIdx.x"], []]),
    "pragma": _with(BLOCK, LOOPS, ["Annotate", ["x1", '"int x;"'], ["pragma_import_c"], []]),
    "intrinsic": _with(BLOCK, ["Tensorize", ["x"], ["dot_16x4_vnni", True], []]),
    "nested without end": _with(
        BLOCK, *(["AddUnitLoop", ["x"], [], [f"u{i}"]] for i in range(1900))
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_sound_trace_is_refused(name):
    with pytest.raises(RecordError, match="a trace cannot be applied: "):
        replay(MODULE, HOSTILE[name])


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
    graph = json.loads(trace[0][1][2][0])
    graph["nodes"][-1]["data"]["initial_indices"] = 10**9
    trace[0][1][2] = [json.dumps(graph)]
    with pytest.raises(RecordError, match="a trace cannot be applied"):
        replay(module, trace)


@pytest.mark.parametrize("number", [1, 5])
def test_a_replayed_schedule_computes_the_same(number):
    sch = replay(MODULE, helpers.traces()[number])
    np.testing.assert_allclose(helpers.run(sch.mod), helpers.run(MODULE), rtol=1e-4, atol=1e-4)
