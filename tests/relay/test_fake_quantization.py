"""Relay's names around quantized networks, over those of `tvmlab.qnn`."""

from __future__ import annotations

from typing import Any

import pytest
import tvm_ffi

from tvmlab import qnn, relay
from tvmlab.errors import RelayError

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
    made = one(mod)
    assert relay.analysis.list_op_freqs(made) == {"qnn.quantize": 1, "clip": 1, "qnn.add": 1}
    assert tvm_ffi.structural_equal(made, qnn.transform.FakeQuantizationToInteger()(mod))
    both = relay.transform.Sequential([relay.transform.InferType(), one])(mod)
    assert tvm_ffi.structural_equal(both, made)


def test_it_takes_a_graph_that_was_put_together_by_hand() -> None:
    x = relay.var("x", shape=(1, 4), dtype="int8")
    real = relay.qnn.op.dequantize(x, relay.const(0.5), relay.const(0))
    out = relay.qnn.op.quantize(relay.nn.relu(real), relay.const(0.5), relay.const(-128))
    mod = relay.IRModule.from_expr(relay.Function([x], out))
    made = relay.transform.FakeQuantizationToInteger()(mod)
    assert relay.analysis.list_op_freqs(made) == {"qnn.requantize": 1}


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ({"hard_fail": True}, "float_operators"),
        ({"use_qat": True}, "quantize"),
        ({"optional_qnn_ops": ["nn.softmax"]}, "leave it out"),
    ],
)
def test_options_that_are_not_carried_are_refused(option: dict[str, Any], fix: str) -> None:
    with pytest.raises(RelayError, match=next(iter(option))) as caught:
        relay.transform.FakeQuantizationToInteger(**option)
    assert fix in str(caught.value.fix)


def test_passes_of_relays_qnn_say_where_they_went() -> None:
    for name in ("CanonicalizeOps", "Legalize"):
        with pytest.raises(AttributeError, match=r"tvmlab\.qnn\.transform \(its Legalize"):
            getattr(relay.qnn.transform, name)
    assert qnn.transform.Legalize.__name__ == "Legalize"
