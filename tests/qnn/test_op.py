"""Quantized operators: the types of their results, and their rows in Relay's table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tvm import relax, tirx

from tests.ir.reference import back_and_forth, unknown, var
from tvmlab.ir import graph
from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext
from tvmlab.qnn import op, rows, unary  # noqa: F401 (rows fills the table)

DATA = Path(__file__).parents[1] / "data" / "relay"


def real(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def whole(value: int) -> relax.Expr:
    return relax.const(value, "int32")


def scales(count: int) -> relax.Var:
    return var(count, name="scales")


def zeros(count: int) -> relax.Var:
    return var(count, dtype="int32", name="zeros")


def said(call: relax.Call) -> tuple[list[Any] | None, str]:
    """Give a result's shape and dtype."""
    shape = call.ty.shape
    sizes = None if shape is None else [int(size) for size in shape.values]
    return sizes, str(call.ty.dtype) if call.ty.dtype else ""


def conv2d(data: relax.Expr, kernel: relax.Expr, kernel_scale: Any = None, **more: Any) -> Any:
    scale = real(0.25) if kernel_scale is None else kernel_scale
    window = {"kernel_size": None, "channels": None} | more
    return op.conv2d(data, kernel, whole(3), whole(0), real(0.5), scale, **window)


IMAGE = (1, 8, 9, 10)
#: Functions of one tensor, with one scale and zero point on each side.
UNARY = sorted(unary.FUNCTIONS)


CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
#: Shapes of data and weights, attributes, and the shape that Relay gives.
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], list[int]]] = [
    (IMAGE, (6, 8, 3, 3), {}, [1, 6, 7, 8]),
    (IMAGE, (6, 8, 3, 3), {"padding": (0, 0, 2, 1), "strides": (2, 1)}, [1, 6, 5, 9]),
    (IMAGE, (6, 8, 3, 3), {"padding": (1,), "dilation": (2, 2)}, [1, 6, 7, 8]),
    (IMAGE, (6, 4, 3, 3), {"groups": 2, "channels": 6, "kernel_size": (3, 3)}, [1, 6, 7, 8]),
    (IMAGE, (16, 1, 3, 3), {"groups": 8, "channels": 16}, [1, 16, 7, 8]),
    (IMAGE, (8, 2, 3, 3), {"groups": 8, "channels": 16}, [1, 16, 7, 8]),
    ((1, 9, 10, 8), (3, 3, 8, 6), CHANNELS_LAST, [1, 7, 8, 6]),
    (
        *((1, 9, 10, 8), (3, 3, 8, 2)),
        *({"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 8}, [1, 7, 8, 16]),
    ),
    (IMAGE, (6, 8, 3, 3), {"out_layout": "NHWC"}, [1, 7, 8, 6]),
]


def scalars(count: int) -> list[relax.Expr]:
    return [real(0.1), whole(1), real(0.2), whole(2), real(0.3), whole(3)][: 2 * count]


def tensor(*shape: int, dtype: str = "int8") -> relax.Var:
    return var(*shape, dtype=dtype)


PARAMETERS = [whole(3), zeros(5), real(0.5), scales(5)]
#: Calls with the shape and dtype of their results, and attributes that Relay's text says.
RESULTS: list[tuple[relax.Call, list[int], str, dict[str, Any]]] = [
    *(
        (conv2d(tensor(*data, dtype="uint8"), tensor(*kernel), **more), shape, "int32", {})
        for data, kernel, more, shape in CONVOLUTIONS
    ),
    (
        conv2d(tensor(*IMAGE), tensor(6, 8, 3, 3), kernel_scale=scales(6), padding=(1, 2)),
        *([1, 6, 9, 12], "int32", {"padding": [1, 2, 1, 2]}),
    ),
    (
        conv2d(tensor(*IMAGE), tensor(8, 2, 3, 3), groups=8, kernel_scale=scales(16), padding=(1,)),
        *([1, 16, 9, 10], "int32", {"padding": [1, 1, 1, 1]}),
    ),
    (op.dense(tensor(2, 4), tensor(5, 4), *PARAMETERS, units=5), [2, 5], "int32", {}),
    (
        op.batch_matmul(tensor(2, 3, 4), tensor(1, 5, 4), whole(3), whole(4), real(0.5), real(1)),
        *([2, 3, 5], "int32", {"transpose_b": True}),
    ),
    *(
        (
            getattr(op, name)(tensor(2, 3, 4, dtype="uint8"), tensor(3, 1, dtype="uint8"), *given),
            *([2, 3, 4], "uint8", {}),
        )
        for name in ("add", "subtract", "mul")
        for given in [scalars(3)]
    ),
    (op.leaky_relu(tensor(2, 3), 0.5, *scalars(2)), [2, 3], "int8", {"alpha": 0.5}),
    *((getattr(op, name)(tensor(2, 3), *scalars(2)), [2, 3], "int8", {}) for name in UNARY),
    (op.dequantize(tensor(2, 3), *scalars(1), out_dtype="float16"), [2, 3], "float16", {}),
    (
        op.quantize(var(2, 3, 4), scales(3), zeros(3), axis=1, out_dtype="uint8"),
        *([2, 3, 4], "uint8", {"axis": 1}),
    ),
    (op.quantize(var(), real(1.0), whole(0)), [], "int8", {}),  # a scalar has one channel
    (
        op.requantize(
            tensor(1, 6, 4, 4, dtype="int32"),
            *(scales(6), whole(0), real(0.1), whole(3)),
            **{"axis": 1, "rounding": "UPWARD"},
        ),
        *([1, 6, 4, 4], "int8", {"rounding": "UPWARD", "axis": 1}),
    ),
    (
        op.concatenate(
            [tensor(2, 3), tensor(2, 5)],
            *([real(0.1), real(0.2)], [whole(1), whole(2)], real(0.3), whole(3)),
            axis=1,
        ),
        *([2, 8], "int8", {"axis": 1}),
    ),
    (
        op.avg_pool2d(
            tensor(1, 9, 9, 3), *scalars(2), (2, 2), (2, 2), (0, 0), (1, 1), ceil_mode=True
        ),
        *([1, 5, 5, 3], "int8", {"ceil_mode": True}),
    ),
]


@pytest.mark.parametrize(
    ("call", "shape", "dtype", "attributes"),
    RESULTS,
    ids=[f"{i}-{row[0].op.name.removeprefix('relax.qnn.')}" for i, row in enumerate(RESULTS)],
)
def test_results_and_relays_attributes(
    call: relax.Call, shape: list[int], dtype: str, attributes: dict[str, Any]
) -> None:
    assert said(call) == (shape, dtype)
    found = back_and_forth(call)
    assert {name: found[name] for name in attributes} == attributes


def test_a_bound_tuple_is_joined() -> None:
    parts = relax.TupleType([tensor(2, 3).ty, tensor(2, 5).ty])
    rest = [[real(0.1), real(0.2)], [whole(1), whole(2)], real(0.3), whole(3)]
    assert said(op.concatenate(relax.Var("t", parts), *rest, axis=-1)) == ([2, 8], "int8")


def test_what_is_not_known_stays_open() -> None:
    # As in a fragment whose variables have no types: the dtype that an attribute says is known.
    quantized = op.quantize(unknown(), real(0.1), whole(1), axis=1, out_dtype="uint8")
    assert (said(quantized), quantized.ty.ndim) == ((None, "uint8"), -1)
    call = conv2d(quantized, unknown("w"), channels=32, kernel_size=(3, 3))
    assert (said(call), call.ty.ndim) == ((None, "int32"), 4)
    known = conv2d(var(*IMAGE, dtype="int8"), unknown("w"), channels=32, kernel_size=(3, 3))
    assert said(known) == ([1, 32, 7, 8], "int32")
    assert said(op.requantize(call, unknown("s"), whole(0), real(0.1), whole(3)))[1] == "int8"
    n = tirx.Var("n", "int64")
    batch = conv2d(var(n, 8, 9, 10, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w"))
    assert batch.ty.shape.values[0].same_as(n)
    assert said(op.dense(unknown(), unknown("w"), *[whole(0)] * 2, real(1.0), real(1.0), 5)) == (
        None,
        "int32",
    )
    bare = op.quantize(relax.Var("nothing"), real(0.1), whole(1))
    assert not graph.has_type(bare)


ONE_ROW = """
import numpy as np, tvm, tvmlab
from tvm import relax
from tvmlab.qnn import arithmetic, op, unary

unary.unary("sin", "Sine", np.sin)

from tvmlab import relay
from tvmlab.qnn import transform  # and so the tables, which are made of the definitions

scale, zero, x = np.float32(0.03), np.int32(5), np.arange(-128, 128, dtype="int8")
constants = [relax.const(value) for value in (scale, zero, np.float32(1 / 127), np.int32(-3))]
wanted = arithmetic.sin(x, scale, zero, 1 / 127, -3)
real = np.sin((x.astype("float64") - 5) * scale) * 127 - 3
assert np.abs(wanted - np.clip(real, -128, 127)).max() < 0.51

def module(build):
    builder, data = relax.BlockBuilder(), relax.Var("x", relax.TensorType([256], "int8"))
    with builder.function("main", [data]):
        with builder.dataflow():
            made = builder.emit_output(build(builder, data))
        builder.emit_func_output(made)
    return builder.get()

def in_floats(builder, data):
    real = builder.emit(op.dequantize(data, *constants[:2]))
    return op.quantize(builder.emit(relax.op.sin(real)), *constants[2:])

called = module(lambda builder, data: op.sin(data, *constants))
assert np.array_equal(tvmlab.compile(called)(x), wanted)
found = transform.FakeQuantizationToInteger()(module(in_floats))
assert "R.qnn.sin" in found.script() and np.array_equal(tvmlab.compile(found)(x), wanted)
tvm.ir.assert_structural_equal(relay.fromtext(relay.astext(called)), called)
tvm.ir.assert_structural_equal(tvm.script.from_source(called.script(show_meta=True)), called)
help(op.sin)
"""


def test_a_function_is_one_row() -> None:
    """As CONTRIBUTING says, in a process of its own, which the operator does not outlive."""
    done = subprocess.run([sys.executable, "-c", ONE_ROW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Sine of a quantized tensor's real values" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "rewrite/torch_before",
        "rewrite/torch_after_partitioned",
        "rewrite/tflite_after",
        "mlp",
        "mobilenet",
        "resnet50",
        "resnet8_cifar",
    ],
)
def test_calls_come_out_as_relay_printed_them(name: str) -> None:
    """Operators, attributes, defaults and inferred types, as Relay 0.18 printed them."""
    text = (DATA / f"{name}.relay").read_text().split("#[metadata]")[0]
    calls = [line for line in text.splitlines() if re.search(r"\bq?nn\.", line)]
    assert len(calls) > 3
    printed = astext(fromtext((DATA / f"{name}.relay").read_text())).splitlines()
    assert [line for line in printed if re.search(r"\bq?nn\.", line)] == calls
