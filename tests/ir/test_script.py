"""What TVM prints of our operators, read again: TVMScript and JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import tvmlab
from tests.short import long
from tvmlab import models
from tvmlab.ir import dialect, script
from tvmlab.qnn import elementwise, op
from tvmlab.qnn.transform import FakeQuantizationToInteger


def var(name: str, *shape: int, dtype: str = "int8") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def scale(*values: float) -> relax.Expr:
    return relax.const(np.float32(values if len(values) > 1 else values[0]))


def zero(*values: int) -> relax.Expr:
    return relax.const(np.int32(values if len(values) > 1 else values[0]))


X, Y = var("x", 1, 2, 6, 6), var("y", 1, 2, 6, 6)
FLOATS, SUMS = var("x", 1, 2, 6, 6, dtype="float32"), var("x", 1, 2, 6, 6, dtype="int32")
ROWS, MORE = var("x", 3, 4), var("y", 5, 4)
KERNEL, BACK = var("w", 4, 2, 3, 3), var("w", 2, 4, 3, 3)
ENDS = (scale(0.1), zero(3), scale(0.2), zero(-4))
SIDES = (scale(0.1), zero(3), scale(0.3), zero(0), scale(0.2), zero(-4))
PRODUCT = (zero(3), zero(0), scale(0.1))
CHANNELS = scale(0.1, 0.2, 0.3, 0.4)

# Every operator, with attributes other than the defaults.
CALLS: dict[str, relax.Call] = {
    "quantize": op.quantize(FLOATS, scale(0.1, 0.2), zero(0, 1), 1, "uint8", "ONNX"),
    "dequantize": op.dequantize(X, scale(0.1, 0.2), zero(0, 1), 1, "float16"),
    "requantize": op.requantize(
        SUMS, scale(1 / 3, 1e-30), zero(0), scale(0.7), zero(5), 1, "TFLITE", "int64", "uint8"
    ),
    "conv2d": op.conv2d(
        X, KERNEL, *PRODUCT, CHANNELS, None, 4, (2, 1), (1, 0, 2, 1), out_layout="NHWC"
    ),
    "conv2d_transpose": op.conv2d_transpose(
        X, BACK, *PRODUCT, CHANNELS, output_padding=(1, 0), strides=(2, 2), channels=4
    ),
    "dense": op.dense(ROWS, MORE, *PRODUCT, scale(0.5), units=None),
    "batch_matmul": op.batch_matmul(
        var("x", 2, 3, 4), var("y", 2, 5, 4), zero(1), zero(2), scale(0.1), scale(0.2)
    ),
    "concatenate": op.concatenate(
        [X, Y], [scale(0.1), scale(0.2)], [zero(1), zero(2)], scale(0.3), zero(4), 1
    ),
    "avg_pool2d": op.avg_pool2d(
        X,
        *ENDS,
        pool_size=(3, 2),
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        ceil_mode=True,
    ),
    "softmax": op.softmax(X, *ENDS, axis=1),
    "leaky_relu": op.leaky_relu(X, 0.1, *ENDS),
    **{name: getattr(op, name)(X, Y, *SIDES, rounding="TFLITE") for name in elementwise.BINARY},
    **{name: getattr(op, name)(X, *ENDS) for name in elementwise.UNARY},
}


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


def test_every_operator_has_a_call_here() -> None:
    assert set(CALLS) == set(op.__all__)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_operators_are_read_as_they_were_printed(name: str) -> None:
    mod = module(CALLS[name])
    assert f"R.qnn.{name}(" in mod.script()
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


@pytest.mark.parametrize("order", [pytest.param("tvm, tvmlab", marks=long), "tvmlab, tvm"])
def test_a_process_that_imported_no_more_than_tvmlab_reads_it(
    order: str, integers: tvm.IRModule, tmp_path: Path
) -> None:
    text = tmp_path / "integers.py"
    text.write_text(integers.script(show_meta=True))
    code = (
        f"import sys, {order}\n"
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


def test_names_of_tvms_own_stay() -> None:
    reader: Any = tvm.relax.script.parser
    before = reader.nn
    assert script.namespace("nn") is not before
    assert reader.nn is before
    del script._SPACES["nn"]
    assert reader.qnn is tvm.relax.script.qnn


def test_an_operator_of_ones_own() -> None:
    name = "relax.test_script.twice"
    dialect.register(name, ["data"], lambda types, _: types[0])
    script.add(name, lambda *given, **values: dialect.typed_call(name, given, values))
    try:
        mod = module(dialect.typed_call(name, [X], {"times": 2}))
        assert "R.test_script.twice(x, times=2)" in mod.script()
        tvm.ir.assert_structural_equal(again(mod), mod)
    finally:
        del script._SPACES["test_script"]
        for place in script._R:
            delattr(place, "test_script")
