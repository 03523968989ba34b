"""Relay's names around quantized networks, over those of `tvmlab.qnn`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm_ffi
from tvm import relax

from tests.ir.pattern_graphs import quantized_convolution
from tvmlab import qnn, relay
from tvmlab.errors import RelayError
from tvmlab.ir.patterns import FunctionPattern

FAKE = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4), float32]) {
  %0 = qnn.quantize(%x, 0.02f, 3, out_dtype="int8");
  %1 = qnn.dequantize(%0, 0.02f, 3);
  %2 = nn.relu(%1);
  %3 = add(%2, %1);
  qnn.quantize(%3, 0.05f, -128, out_dtype="int8")
}"""


def test_the_pass_has_relays_name_and_is_ours() -> None:
    mod = relay.fromtext(FAKE)
    one = relay.transform.FakeQuantizationToInteger(hard_fail=False, use_qat=False)
    assert one.info.name == "FakeQuantizationToInteger"
    made = relay.transform.Sequential([relay.transform.InferType(), one])(mod)
    assert relay.analysis.list_op_freqs(made) == {"qnn.quantize": 1, "clip": 1, "qnn.add": 1}
    assert tvm_ffi.structural_equal(made, qnn.transform.FakeQuantizationToInteger()(mod))
    x = relay.var("x", shape=(1, 4), dtype="int8")  # a graph by hand
    real = relay.qnn.op.dequantize(x, relay.const(0.5), relay.const(0))
    out = relay.qnn.op.quantize(relay.nn.relu(real), relay.const(0.5), relay.const(-128))
    assert relay.analysis.list_op_freqs(one(relay.from_expr(out))) == {"qnn.requantize": 1}


def test_options_that_are_not_carried_are_refused() -> None:
    for option, value in (("hard_fail", True), ("use_qat", True), ("optional_qnn_ops", ["add"])):
        with pytest.raises(RelayError, match=f"carry {option}"):
            relay.transform.FakeQuantizationToInteger(**{option: value})


REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"
FACTS = json.loads((REWRITE / "facts.json").read_text())


def read(name):
    return relay.fromtext((REWRITE / f"{name}.relay").read_text())


@pytest.mark.parametrize("frontend", ["torch", "tflite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_backends_pattern_matches_where_it_did_in_relay(frontend, when):
    main = read(f"{frontend}_{when}")["main"]
    expected = FACTS[f"{frontend}_matches_{when}"]
    assert quantized_convolution().match(main.body) == expected
    assert FunctionPattern(None, quantized_convolution()).match(main) == expected


@pytest.mark.parametrize("name", ["torch_after", "tflite_before"])
def test_what_is_cut_out_has_relays_name_parameters_and_constants(name):
    main = read(name)["main"]
    result = quantized_convolution().partition(main, {"Composite": "tvmlab_npu.qnn_conv2d"})
    printed = relay.astext(relay.IRModule.from_expr(result), show_meta_data=False)
    wanted = (REWRITE / f"{name}_partitioned.relay").read_text()
    composite = next(line.strip() for line in wanted.splitlines() if "fn (" in line)
    signature = composite[composite.index("fn (") :]
    assert signature in printed
    (call,) = [
        binding.value
        for block in result.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, relax.Var)
    ]
    assert float(call.args[1].value.numpy()) == 114.0
