"""What the real Relay computed: by the reference, and compiled, fused and scheduled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

import tvmlab
from tests.oracles import golden
from tests.oracles.litert import read
from tests.oracles.models import real_model
from tests.short import beside, long
from tvmlab import relay
from tvmlab.qnn.config import requantize_config

HERE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"


@pytest.mark.parametrize("name", golden.names())
def test_relay_s_results_bit_for_bit(name: str) -> None:
    case = golden.read(name)
    golden.check(case, golden.computed(case), ulp=0)


def test_all_of_relay_s_results() -> None:
    folder = beside(golden.WHOLE)
    for name in golden.names(folder):
        case = golden.read(name, folder)
        golden.check(case, golden.computed(case), ulp=0)


@long
def test_relays_results_compiled() -> None:
    """Without our schedules; `tests/contract/test_contract_exact.py` compiles with them."""
    groups = golden.by_configuration(golden.HERE)
    assert len(groups) >= 3
    for cases in groups:
        for case, result in zip(cases, golden.compiled(cases, schedule=False), strict=True):
            golden.check(case, result)


@pytest.mark.parametrize("compute_dtype", ["int64", "float32"])
@pytest.mark.parametrize("frontend", ["torch", "tflite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_customers_convolution_gives_relays_bits(
    frontend: str, when: str, compute_dtype: str
) -> None:
    outputs = beside("golden/rewrite/io.npz")
    mod = relay.fromtext((HERE / f"{frontend}_{when}.relay").read_text())
    with np.load(outputs) as arrays:
        data = arrays["in_input"]
        name = frontend if when == "before" else f"{frontend}_after"
        expected = arrays[f"{name}_{compute_dtype}"]
    with requantize_config(compute_dtype=compute_dtype):
        run = tvmlab.compile(mod)
    np.testing.assert_array_equal(run(data), expected)
    (kernel,) = (k.name for k in run.summary().kernels if "conv2d" in k.name)
    assert "requantize" in kernel  # and the bias, all in one


@mutator
class Sharpened(PyExprMutator):  # type: ignore[misc]
    """Puts a model's scales in the places of those that the text prints with six digits."""

    def __init__(self, mod: tvm.IRModule, scales: Iterable[float]) -> None:
        super().__init__(mod)
        self.scales: dict[str, set[np.float32]] = {}
        for scale in map(np.float32, scales):
            self.scales.setdefault(f"{scale:.6g}", set()).add(scale)

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        value = constant.value.numpy()
        if value.ndim or value.dtype != np.float32:
            return constant
        (scale,) = self.scales[f"{value:.6g}"]
        return relax.const(scale)


def test_resnet8_as_relay_ran_it() -> None:
    """Relay computed with the scales of the model file, of which its text has six digits."""
    pytest.importorskip("tflite", reason="tflite is not installed")
    tensors, _ = read(real_model("resnet8_int8.tflite"))
    mod = relay.fromtext(beside("golden/tflite/resnet8_int8.relay").read_text())
    scales = [tensor.scales[0] for tensor in tensors if len(tensor.scales) == 1]
    main = Sharpened(mod, scales).visit_expr(mod["main"])
    mod.update_func(mod.get_global_var("main"), main)
    with np.load(beside("golden/tflite/resnet8_int8.npz")) as arrays:
        data, expected = arrays["in"], arrays["out_int64"]
    run = tvmlab.compile(mod)
    found = np.stack([run(one) for one in data])
    np.testing.assert_array_equal(found, expected)
    names = [kernel.name for kernel in run.summary().kernels]
    convolutions = [name for name in names if "qnn_conv2d" in name]
    assert len(convolutions) == 9
    assert all("requantize" in name for name in convolutions)
    assert not run.summary().unscheduled
    assert len(names) <= 13
