"""The file of tuning records: what is written is read, and what decides decides."""

from __future__ import annotations

import math

import pytest
import tvm
import tvm_ffi

from tests.records import records as helpers
from tests.records.records import MODULE, OTHER, TARGET, result, verdict
from tvmlab.errors import RecordError
from tvmlab.records.entries import Workload, mismatch, normalized, target_data, workload_id
from tvmlab.records.records import Records


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


def test_another_process_is_read_by_refresh(path):
    mine, other = Records(path), Records(path)
    other.append(result(seed=1))
    assert len(mine) == 0
    mine.refresh()
    assert mine.results() == other.results()


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


def test_what_does_not_fit_is_ignored(path):
    assert "made for tvmlab 0.0" in mismatch(verdict(tvmlab="0.0"), TARGET)
    records = Records(path)
    records.append(verdict(rule=1.0), verdict(target=target_data(OTHER)), verdict(tvm="0.1"))
    assert records.best("w", TARGET).rule == 1.0


@pytest.mark.parametrize(
    "wrong", [{"times": (math.nan,)}, {"task": "\ud800"}, {"trace": [object()]}]
)
def test_what_is_no_result_is_not_written(path, wrong):
    with pytest.raises(RecordError, match="this is no record"):
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
    with pytest.raises(RecordError, match="this is no file of tuning records"):
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
        ("3", "the records hold no such workload"),
    ]:
        with pytest.raises(RecordError, match=why):
            found.module(name)
