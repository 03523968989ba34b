"""Relay's networks for tests, and its names around quantized networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from tests.ir.pattern_graphs import quantized_convolution
from tvmlab import qnn, relay
from tvmlab.errors import RelayError
from tvmlab.ir.patterns import FunctionPattern
from tvmlab.relay import testing, transform
from tvmlab.relay.testing import create_workload, run_opt_pass


def test_a_network_has_its_layers_and_is_read_as_it_was_printed() -> None:
    mod, params = testing.resnet.get_workload(num_layers=18)
    assert len(params) == 99
    assert params["stage4_unit2_conv2_weight"].shape == (512, 512, 3, 3)
    assert relay.analysis.list_op_freqs(mod)["nn.conv2d"] == 21
    types = {param.name: param.ty for param in mod["main"].params}
    assert next(iter(types)) == "data"
    assert types.keys() == {"data", *params}
    for name, value in params.items():
        assert types[name] == relay.TensorType(value.shape, str(value.dtype))
    again = relay.fromtext(relay.astext(mod))
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)


def test_a_network_that_there_is_not_is_refused() -> None:
    with pytest.raises(RelayError, match="no ResNet of 7 layers"):
        testing.resnet.get_workload(num_layers=7)


def test_a_network_runs() -> None:
    def network() -> Any:
        x = relay.nn.relu(testing.dense_add_bias(relay.var("data", shape=(2, 784)), 128, "fc1"))
        logits = testing.dense_add_bias(x, 10, "fc2")
        return create_workload(relay.analysis.as_function(relay.nn.softmax(logits)))

    (mod, params), (_, again) = network(), network()
    x = data = np.random.default_rng(0).random((2, 784)).astype("float32")
    for name in ("fc1", "fc2"):
        weight = params[f"{name}_weight"].numpy()
        np.testing.assert_array_equal(again[f"{name}_weight"].numpy(), weight)
        x = x @ weight.T + params[f"{name}_bias"].numpy()
        x = np.maximum(x, 0) if name == "fc1" else np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    made = relay.create_executor("vm", mod, params=params).evaluate()(data).numpy()
    np.testing.assert_allclose(made, x, rtol=1e-4, atol=1e-6)


def test_workloads_of_ones_own() -> None:
    x = relay.var("data", shape=(1, 3))
    net = relay.Function([x, relay.var("w", shape=(2, 3))], x)
    with pytest.raises(RelayError, match="no default values for 'w'"):
        create_workload(net)
    params = create_workload(net, lambda _, array: array.fill(7))[1]
    np.testing.assert_array_equal(params["w"].numpy(), np.full((2, 3), 7, "float32"))
    passes = [transform.InferType(), transform.FoldConstant()]
    assert tvm_ffi.structural_equal(run_opt_pass(net, passes), relay.from_expr(net)["main"])


# Quantized networks

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

    strict, with_softmax = (
        relay.transform.FakeQuantizationToInteger(hard_fail=True, optional_qnn_ops=names)
        for names in (None, ["nn.softmax"])
    )
    soft = relay.qnn.op.quantize(relay.nn.softmax(real), relay.const(0.5), relay.const(-128))
    with pytest.raises(RelayError, match=r"nn\.softmax stays in float"):
        strict(relay.from_expr(soft))
    assert relay.analysis.list_op_freqs(with_softmax(relay.from_expr(soft))) == {"qnn.softmax": 1}


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
