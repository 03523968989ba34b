"""A module's dataflow as a diagram, and its operators as a table."""

from __future__ import annotations

import re

import pytest
from helpers_models import said
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tvmlab import models
from tvmlab.diagram import diagram
from tvmlab.errors import InputError
from tvmlab.operators import Row, operators


@I.ir_module
class Small:
    @R.function
    def other(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        return R.tanh(x)

    @R.function
    def main(
        x: R.Tensor((2, "n"), "float32"), w: R.Tensor((3, 4), "float32"), c: R.Tensor((), "bool")
    ):
        y = R.matmul(w, R.const([1.0, 2.0, 3.0, 4.0]))
        both = (x, w)
        z = both[1]
        s = R.split(z, 2, axis=1)
        t = R.concat((s[0], s[1]), axis=1)
        return (R.add(t, t), y, x)


def test_a_diagram() -> None:
    assert diagram(Small).splitlines() == [
        "flowchart TD",
        '  n1(["x<br>float32[2, n]"])',
        '  n2(["w<br>float32[3, 4]"])',
        '  n3(["c<br>bool[]"])',
        '  n4["matmul<br>float32[3]"]',
        "  n2 --> n4",
        '  n5["split"]',
        "  n2 --> n5",
        '  n6["concat<br>float32[3, 4]"]',
        "  n5 --> n6",
        '  n7["add<br>float32[3, 4]"]',
        "  n6 --> n7",
        '  n8(["result"])',
        "  n7 --> n8",
        "  n4 --> n8",
        "  n1 --> n8",
    ]
    assert diagram(Small, "other").count("\n") == 5
    with pytest.raises(InputError, match="no Relax function 'nothing'") as caught:
        diagram(Small, "nothing")
    assert "main" in said(caught.value)


def test_signs_of_mermaids_own_are_kept_out() -> None:
    odd = relax.Var('a"]; <b> #1', relax.TensorType((1,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [odd]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(odd)))
    assert '(["a#quot;]; #lt;b#gt; #35;1<br>float32[1]"])' in diagram(builder.get())


@I.ir_module
class Branch:
    @R.function
    def main(
        c: R.Tensor((), "bool"),
        x: R.Tensor((2,), "float32"),
        y: R.Tensor((2,), "float32"),
        unused: R.Tensor((2,), "float32"),
    ) -> R.Tensor((2,), "float32"):
        if c:  # noqa: SIM108 (TVMScript has no such expression)
            z = R.add(x, x)
        else:
            z = R.tanh(y)
        return z


def test_a_branch_reads_what_its_sides_take_from_outside() -> None:
    lines = diagram(Branch).splitlines()
    assert '  n5["if<br>float32[2]"]' in lines
    assert [line for line in lines if line.endswith("--> n5")] == [
        *("  n1 --> n5", "  n2 --> n5", "  n3 --> n5"),
    ]


def test_every_call_of_a_network_has_a_box_and_a_way_in() -> None:
    mod = tvmlab.load(models.digits_resnet())
    text = diagram(mod)
    boxes = set(re.findall(r"^  (n\d+)[\[(]", text, re.MULTILINE))
    ends = set(re.findall(r"--> (n\d+)$", text, re.MULTILINE))
    (turned,) = re.findall(r'(n\d+)\["permute_dims', text)  # of a weight, which has no box
    assert boxes - ends == {"n1", turned}
    assert len(boxes) - 2 == sum(row.calls for row in operators(mod).rows)


def test_operators() -> None:
    found = operators(Small)
    assert found.rows[0] == Row("matmul", 1, 12)
    assert {row.operator for row in found.rows} == {"matmul", "split", "concat", "add", "tanh"}
    lines = str(found).splitlines()
    assert lines[0].split() == ["operator", "calls", "multiply-accumulates", "share"]
    assert lines[-1].split() == ["all", "5", "12", "100.0%"]


def test_operators_of_a_partitioned_network() -> None:
    from tvmlab import npu
    from tvmlab.models.resnet8 import resnet8_tflite
    from tvmlab.qnn.transform import FakeQuantizationToInteger

    mod = FakeQuantizationToInteger()(tvmlab.load(resnet8_tflite()))
    before, after = (
        {row.operator: (row.calls, row.macs) for row in operators(each).rows}
        for each in (mod, npu.partition(mod))
    )
    assert before["qnn.conv2d"] == after["qnn.conv2d"]
    assert sum(macs for _, macs in after.values()) == 12_501_632
    assert "tvmlab_npu" in diagram(npu.partition(mod))
