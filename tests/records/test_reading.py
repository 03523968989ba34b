"""Functions' texts from a file: the function that it should be, or a reason; never a crash."""

from __future__ import annotations

import json

import pytest
import tvm
import tvm_ffi

from tests.records.records import MODULE
from tvmlab.errors import RecordError
from tvmlab.records.lines import encode
from tvmlab.records.reading import read_modules
from tvmlab.records.records import Records
from tvmlab.records.result import Workload
from tvmlab.records.workloads import normalized, to_text, workload_id

TEXT = to_text(normalized(MODULE))


def _graph(kind, field, value):
    """Change a field of the first node of a kind."""
    graph = json.loads(TEXT)
    node = next(one for one in graph["nodes"] if one["type"] == kind)
    node["data"][field] = value
    return json.dumps(graph)


@pytest.fixture(scope="module")
def read():
    """Read many texts at once: each process that does it takes seconds to start."""
    last = len(json.loads(TEXT)["nodes"]) - 1
    texts = {
        "sound": TEXT,
        "itself": _graph("ir.IntImm", "ty", last),
        "a wrong kind": _graph("tirx.For", "body", 0),
        "nested": "[" * 10**5,
        "no function": to_text(tvm.IRModule()),
        "no module": str(tvm.ir.save_json(MODULE["main"])),
        "sound again": TEXT,
    }
    return dict(zip(texts, read_modules(list(texts.values())), strict=True))


def test_a_sound_text_is_read_before_and_after_one_that_ends_the_process(read):
    for name in ("sound", "sound again"):
        assert tvm_ffi.structural_equal(read[name], normalized(MODULE))
    assert read["itself"] == "TVM's reader of modules ends the process on this text"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a wrong kind", ""),
        ("nested", ""),
        ("no function", "the module has 0 functions"),
        ("no module", "is that of no module"),
    ],
)
def test_a_damaged_text_gives_a_reason(read, name, why):
    assert isinstance(read[name], str)
    assert read[name]
    assert why in read[name]


def test_the_text_of_another_function_is_refused(tmp_path):
    path, name = tmp_path / "records", workload_id(MODULE)
    other = tvm.script.from_source(MODULE.script().replace("T.max", "T.min"))
    lines = [Workload(name, "product", to_text(normalized(other))), Workload("0", "", TEXT)]
    path.write_bytes(b"".join(encode(line.line()) for line in lines))
    found = Records(path)
    with pytest.raises(RecordError, match=r"that of another function\n  where: .*records, line 1"):
        found.module(name)
    with pytest.raises(RecordError, match="the records hold no such workload"):
        found.module("1")
    assert found.modules() == {
        name: "a workload's text is that of another function",
        "0": "a workload's text is that of another function",
    }


def test_what_needs_no_other_process(tmp_path, monkeypatch):
    """Nothing to read, and what this process wrote."""
    records = Records(tmp_path / "records")
    name = records.workload(MODULE)
    monkeypatch.setattr("subprocess.Popen", None)
    assert read_modules([]) == []
    assert workload_id(records.module(name)) == name


def test_a_process_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/true")
    with pytest.raises(RecordError, match="the process that reads modules does not start"):
        read_modules([TEXT])
