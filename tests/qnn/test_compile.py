"""Compiled kernels: what the real Relay computed, symbolic sizes, and warnings.

`test_property.py` compares all operators with the reference.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

import tvmlab
from tests.oracles import golden
from tests.oracles.litert import read
from tests.oracles.models import real_model
from tests.qnn.cases import Case, module
from tests.short import beside
from tvmlab import relay
from tvmlab.qnn import arithmetic, op
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
    # On some processors, a few are computed by Winograd's algorithm, in three functions.
    before = [name for name in names if "winograd_input" in name or "winograd_product" in name]
    convolutions = [name for name in names if "qnn_conv2d" in name or "winograd_output" in name]
    assert len(convolutions) == 9
    assert all("requantize" in name for name in convolutions)
    assert not run.summary().unscheduled
    assert len(names) - len(before) <= 13


def real(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], "float32")


def whole(*values: int) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], "int32")


N, H, W = (tirx.Var(name, "int64") for name in "nhw")


@pytest.mark.parametrize("schedule", [False, True])
def test_sizes_may_be_open(schedule: bool) -> None:
    """Batch, height and width are known at run time only."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (5, 3, 3, 3), "int8")
    matrix = rng.integers(-128, 128, (4, 5), "int8")

    def build(make: Any, x: Any, rows: Any, const: Any) -> Any:
        sums = [const(whole(3)), const(whole(0)), const(real(0.5)), const(real(0.25))]
        small = [const(real(0.7)), const(whole(-2)), const(real(0.9)), const(whole(4))]
        image = make.conv2d(x, const(weight), *sums, None, None, padding=(1, 1), strides=(2, 1))
        image = make.requantize(image, const(real(0.01)), const(whole(0)), *small[:2])
        both = make.add(image, image, *small[:2], *small[:2], *small[2:])
        pooled = make.avg_pool2d(
            both, *small[2:], *small[:2], (2, 2), (1, 1), (1, 1), (1, 1), True, False, "NCHW"
        )
        joined = make.concatenate(
            [pooled, pooled], [small[0], small[2]], [small[1], small[3]], *small[:2], 2
        )
        return joined, make.tanh(joined, *small), make.dense(rows, const(matrix), *sums)

    x = relax.Var("x", relax.TensorType([N, 3, H, W], "int8"))
    rows = relax.Var("r", relax.TensorType([N, 5], "int8"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, rows]):
        with builder.dataflow():
            made = build(op, x, rows, relax.const)
            results = builder.emit_output(relax.Tuple([builder.emit(one) for one in made]))
        builder.emit_func_output(results)
    run = tvmlab.compile(builder.get(), schedule=schedule)
    for n, h, w in ((1, 4, 5), (3, 9, 2), (2, 17, 16)):
        inputs = [rng.integers(-128, 128, shape, "int8") for shape in ((n, 3, h, w), (n, 5))]
        expected = build(arithmetic, *inputs, lambda value: value)
        for found, wanted in zip(run(*inputs), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["dense", "conv2d"])
def test_sums_that_can_overflow_are_warned_of(name: str) -> None:
    ones, many = [1] * (0 if name == "dense" else 2), 70_000
    more = {"data_layout": "NHWC", "kernel_layout": "OHWI"} if ones else {}
    weight = np.full((2, *ones, many), 127, "int8")
    operands = [np.zeros((1, *ones, many), "uint8"), weight, whole(0), whole(0), real(1), real(1)]
    for schedule in (False, True):
        with pytest.warns(
            UserWarning, match=rf"qnn.{name} .* \(2, .*uint8 data .* {255 * 127 * many}"
        ):
            tvmlab.compile(module([Case(name, operands, (0,), more)])[0], schedule=schedule)
    operands[2] = whole(128)  # then the data are no larger than those of int8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tvmlab.compile(module([Case(name, operands, (0,), more)])[0], schedule=False)
