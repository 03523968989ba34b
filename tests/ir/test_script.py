"""What TVM prints of our operators, read again: TVMScript and JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.ir.rows import EXAMPLES, modules
from tvmlab import models
from tvmlab.qnn import op
from tvmlab.qnn.transform import FakeQuantizationToInteger

X = relax.Var("x", relax.TensorType((1, 2, 6, 6), "int8"))
QUANTIZED = sorted(name for name in EXAMPLES if name.startswith("qnn."))


def module(call: relax.Call) -> tvm.IRModule:
    """Put a call into a module; its operands that are variables become the parameters."""
    params = list(relax.analysis.free_vars(call))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return builder.get()


def again(mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.script.from_source(mod.script(show_meta=True))


@pytest.mark.parametrize("name", QUANTIZED)
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_operators_are_read_as_they_were_printed(name: str, data: st.DataObject) -> None:
    mod = data.draw(modules([name], most=1))
    assert f"R.{name}(" in mod.script()
    tvm.ir.assert_structural_equal(again(mod), mod)
    assert tvm_ffi.structural_equal(tvm.ir.load_json(tvm.ir.save_json(mod)), mod)


@pytest.fixture(scope="module")
def integers() -> tvm.IRModule:
    """The digits network, computing in integers."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tvmlab.models.quantized import quantized_onnx

    model = quantized_onnx(models.digits_resnet())
    return FakeQuantizationToInteger()(tvmlab.load(model))


def test_a_network_is_read_as_it_was_printed(integers: tvm.IRModule) -> None:
    assert "R.relay.nn.bias_add(" in integers.script()
    tvm.ir.assert_structural_equal(again(integers), integers)
    assert tvm_ffi.structural_equal(tvm.ir.load_json(tvm.ir.save_json(integers)), integers)


def test_a_process_that_imported_no_more_than_tvmlab_reads_it(
    integers: tvm.IRModule, tmp_path: Path
) -> None:
    text = tmp_path / "integers.py"
    text.write_text(integers.script(show_meta=True))
    code = (
        "import sys, tvm, tvmlab\n"
        "assert 'tvmlab.relay' not in sys.modules\n"
        f"mod = tvm.script.from_source(open({str(text)!r}).read())\n"
        "print(mod.script().count('R.qnn.conv2d('))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(printed) == integers.script().count("R.qnn.conv2d(") > 5


HAND = """
# from tvm.script import ir as I
# from tvm.script import relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 2, 6, 6), "float32"), w: R.Tensor((4, 2, 3, 3), "int8")):
        with R.dataflow():
            q = R.qnn.quantize(x, R.const(0.1, "float32"), R.const(3, "int32"), out_dtype="uint8")
            c = R.qnn.conv2d(
                q, w, R.const(3, "int32"), R.const(0, "int32"),
                R.const(0.1, "float32"), R.const(0.2, "float32"),
                strides=(2, 2), padding=(0, 0, 0, 0),
            )
            b = R.relay.nn.bias_add(c, R.const([1, 2, 3, 4], "int32"))
            R.output(b)
        return b
"""


def test_a_text_by_hand_has_relays_defaults() -> None:
    mod = tvm.script.from_source(HAND)
    _, product, biased = (one.value for one in mod["main"].body.blocks[0].bindings)
    assert [int(size) for size in product.ty.shape] == [1, 4, 2, 2]
    wanted = op.conv2d(*product.args, kernel_size=None, channels=None, strides=(2, 2))
    assert tvm_ffi.structural_equal(product, wanted, map_free_vars=True)
    assert biased.attrs["axis"] == 1


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("R.qnn.conv2d", "R.qnn.conv", "TVMScript has no R.qnn.conv"),
        ("R.relay.nn", "R.relay.mm", "TVMScript has no R.relay.mm"),
        ("strides=(2, 2)", "stride=(2, 2)", "did you mean 'strides'"),
        (', out_dtype="uint8"', ', out_dtype="uint7"', 'out_dtype is "uint7"'),
    ],
)
def test_mistakes_are_told(right: str, wrong: str, words: str) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        tvm.script.from_source(HAND.replace(right, wrong))
    assert words in str(caught.value)
