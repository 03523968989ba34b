"""The file of tuning records: what is written, read, replayed, damaged, and what decides."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tvm
import tvm_ffi

from tests.records import records as helpers
from tests.records.records import MODULE, TARGET, result, verdict
from tests.short import examples, fresh
from tvmlab.errors import RecordError
from tvmlab.records.entries import Workload, mismatch, normalized, replay, target_data, workload_id
from tvmlab.records.file import Records, _decode, encode
from tvmlab.schedule.machine import DOTS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def test_what_is_written_is_read(path):
    workload = helpers.fill(path)
    before, after = Records(path), Records(path)
    assert len(after) == len(helpers.traces()) + 1
    assert [a.line() for a in before.results()] == [b.line() for b in after.results(workload)]
    assert after.workloads == {workload: "product"}
    assert [one.trace for one in after.results()[:6]] == helpers.traces()
    answer = after.results()[0].answer
    assert answer[0] == 1.5
    assert math.isnan(answer[1])
    assert answer[2] == math.inf
    assert after.verdicts == before.verdicts == [after.verdict(workload, TARGET)]
    assert after.verdicts[0].trace == helpers.traces()[2]


def test_names_and_attributes_do_not_make_a_function_another():
    text = MODULE.script()
    for old, new in (("vi", "row"), ("D", "sums"), ("A", "left")):
        text = text.replace(f"{old}[", f"{new}[").replace(f"{old},", f"{new},")
        text = text.replace(f"{old} =", f"{new} =").replace(f"{old}:", f"{new}:")
        text = text.replace(f"({old} ", f"({new} ")
    renamed = tvm.script.from_source(text)
    assert "row" in renamed.script()
    func = renamed["main"].with_attr("global_symbol", "fused_1").with_attr("op_pattern", 4)
    assert workload_id(renamed) == workload_id(func) == workload_id(MODULE)
    blocks = tvm.script.from_source(text.replace('"relu"', '"clip"'))
    assert workload_id(blocks) != workload_id(MODULE)  # a trace would not find its block
    sizes = tvm.script.from_source(text.replace("T.max", "T.min"))
    assert workload_id(sizes) != workload_id(MODULE)


def test_the_last_verdict_decides(path):
    records = Records(path)
    records.append(result(times=(1e-9,)))
    first, second = verdict(rule=1e-3), verdict(trace=None)
    records.append(first)
    assert records.best("w", TARGET) == records.verdict("w", TARGET) == first
    records.append(second)
    assert records.best("w", TARGET) == records.verdict("w", TARGET) == second
    assert (first.ratio, first.stays) == (0.5, False)
    assert (second.ratio, second.stays) == (1.0, True)
    assert records.best("another", TARGET) is None


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}, ""),
        ({"kind": "llvm", "mcpu": "x86-64-v3"}, ""),
        ({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2}, "mcpu x86-64-v3, not x86-64-v4"),
        ({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}, "num-cores 2, not 4"),
        ({"kind": "llvm", "mcpu": "x86-64-v3", "mattr": ["+avx512f"]}, "mattr none, not +avx512f"),
        (
            {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2},
            "architecture x86_64, not aarch64",
        ),
    ],
)
def test_what_fits_a_target(target, why):
    triple = {"mtriple": "x86_64-linux-gnu"}
    made = result(target={**target_data(TARGET), **triple})
    said = mismatch(made, tvm.target.Target({**triple, **target}))
    assert said == why or (why and said == f"made for {why}")


@pytest.mark.parametrize(
    "wrong", [{"times": (math.nan,)}, {"task": "\ud800"}, {"trace": [object()]}]
)
def test_what_is_no_result_is_not_written(path, wrong):
    with pytest.raises(RecordError, match="this is not a record"):
        Records(path).append(result(**wrong))
    assert not path.exists()


def test_what_cannot_be_read_or_written(tmp_path):
    with pytest.raises(RecordError, match="cannot be read: Is a directory"):
        Records(tmp_path)
    with pytest.raises(RecordError, match="cannot be written: No such file"):
        Records(tmp_path / "missing" / "records").append(result())


@pytest.mark.parametrize(
    "content",
    [b"hello\nworld\n", b'{"a": 1}', b"{}\n", b"\x89PNG\r\n\x1a\n\x00"],
)
def test_a_file_that_is_no_record_file_is_refused_and_stays(tmp_path, content):
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="this is not a file of tuning records"):
        Records(path)
    assert path.read_bytes() == content


def test_the_text_of_a_function_is_read_or_refused(path):
    name = Records(path).workload(MODULE)
    found = Records(path)
    assert tvm_ffi.structural_equal(found.module(name), normalized(MODULE))
    found.append(Workload("1", "", tvm.ir.save_json(tvm.IRModule())), Workload("2", "", "{}"))
    for name, why in [
        ("1", "the module has 0 functions"),
        ("2", "TVM cannot read a workload"),
        ("3", "the records do not contain this workload"),
    ]:
        with pytest.raises(RecordError, match=why):
            found.module(name)


WRONG = {
    "nothing": None,
    "text": "trace",
    "instruction of three": [[["GetSBlock", [], []]], []],
    "unknown instruction": [[["Explode", [], [], []]], []],
    "undefined variable": [[["Parallel", ["y"], [], []]], []],
    "another function's block": [[["GetSBlock", [], ["elsewhere", "main"], ["x"]]], []],
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


SEED = 7
# Forks two processes that append to one file at once.
WRITERS = """
import os, sys
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from tvmlab.records.entries import Result
from tvmlab.records.file import Records

def start(name):
    if child := os.fork():
        return child
    records = Records(sys.argv[1])
    for seed in range(100):
        records.append(Result(workload="w", task=name, origin="search", threads=2, seed=seed,
                              target={"kind": "llvm"}, trace=[["x" * 20000], []], times=(1.0,)))
    os._exit(0)

children = [start(name) for name in ("one", "two")]
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Give the lines of a file with everything in it."""
    path = tmp_path_factory.mktemp("real") / "records.jsonl"
    helpers.fill(path)
    return path.read_bytes().splitlines(keepends=True)


def test_two_processes_write_one_file(path):
    subprocess.run([sys.executable, "-c", WRITERS, str(path)], check=True, timeout=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Records(path).results()
    for name in ("one", "two"):
        assert [one.seed for one in found if one.task == name] == list(range(100))


def test_a_torn_last_line_is_left_out_and_ended(path, lines):
    whole = b"".join(lines[:-1])
    for cut in (1, 5, 12, 100, len(lines[-1]) - 2):
        path.write_bytes(whole + lines[-1][:cut])
        with pytest.warns(RuntimeWarning, match=rf"1 damaged line left out: line {len(lines)} \("):
            records = Records(path)
        assert len(records) == len(lines) - 2
        records.append(result(seed=cut))
        assert path.read_bytes().startswith(whole + lines[-1][:cut] + b'\n{"check":"')
        with pytest.warns(RuntimeWarning, match="1 damaged line left out"):
            assert Records(path).results()[-1].seed == cut


def test_random_damage(path, lines):
    """A damaged file is read or refused; what is read of it is what was written."""
    chance = random.Random(fresh(SEED))
    known = {_decode(line)[0] for line in lines}
    refused = warned = 0
    count = examples(1000)
    for _ in range(count):
        data = bytearray(b"".join(lines))
        if chance.random() < 0.5:
            for _ in range(chance.choice([1, 10, 200])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        else:
            start = chance.randrange(len(data))
            del data[start : start + chance.choice([1, 100, 10**6])]
        path.write_bytes(data)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                records = Records(path)
            except RecordError:
                refused += 1
                continue
        assert {warning.category for warning in caught} <= {RuntimeWarning}
        warned += bool(caught)
        assert {_decode(encode(entry))[0] for entry in records.entries} <= known
    assert warned > count / 3
    assert refused < count / 3
