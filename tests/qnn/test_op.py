"""Quantized operators: their types, what they refuse, and their rows in Relay's table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from tvm import relax, tirx

from tests.ir.reference import back_and_forth, made, unknown, var
from tvmlab.errors import InputError, RelayError, ShapeError, TvmlabError
from tvmlab.ir import graph, table
from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext
from tvmlab.qnn import arithmetic, op

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


def conv2d(data: relax.Expr, kernel: relax.Expr, **more: Any) -> relax.Call:
    given = {"kernel_size": None, "channels": None} | more
    parameters = [
        given.pop(name, usual)
        for name, usual in (
            ("input_zero_point", whole(3)),
            ("kernel_zero_point", whole(0)),
            ("input_scale", real(0.5)),
            ("kernel_scale", real(0.25)),
        )
    ]
    return op.conv2d(data, kernel, *parameters, **given)


IMAGE = (1, 8, 9, 10)


@pytest.mark.parametrize(
    ("data", "kernel", "more", "wanted"),
    [
        (IMAGE, (6, 8, 3, 3), {}, [1, 6, 7, 8]),
        (IMAGE, (6, 8, 3, 3), {"padding": (0, 0, 2, 1), "strides": (2, 1)}, [1, 6, 5, 9]),
        (IMAGE, (6, 8, 3, 3), {"padding": (1,), "dilation": (2, 2)}, [1, 6, 7, 8]),
        (IMAGE, (6, 4, 3, 3), {"groups": 2, "channels": 6}, [1, 6, 7, 8]),
        (IMAGE, (8, 1, 3, 3), {"groups": 8, "kernel_size": (3, 3)}, [1, 8, 7, 8]),
        (IMAGE, (16, 1, 3, 3), {"groups": 8, "channels": 16}, [1, 16, 7, 8]),
        (IMAGE, (8, 2, 3, 3), {"groups": 8, "channels": 16}, [1, 16, 7, 8]),
        (
            (1, 9, 10, 8),
            (3, 3, 8, 6),
            {"data_layout": "NHWC", "kernel_layout": "HWIO"},
            [1, 7, 8, 6],
        ),
        (
            (1, 9, 10, 8),
            (3, 3, 8, 2),
            {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 8},
            [1, 7, 8, 16],
        ),
        (IMAGE, (6, 8, 3, 3), {"out_layout": "NHWC"}, [1, 7, 8, 6]),
    ],
)
def test_convolution_has_relays_shape(
    data: tuple[int, ...], kernel: tuple[int, ...], more: dict[str, Any], wanted: list[int]
) -> None:
    call = conv2d(var(*data, dtype="uint8"), var(*kernel, dtype="int8", name="w"), **more)
    assert said(call) == (wanted, "int32")
    back_and_forth(call)


def test_convolution_takes_scales_by_output_channel() -> None:
    data, kernel = var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")
    call = conv2d(data, kernel, kernel_scale=scales(6), kernel_zero_point=zeros(6))
    assert said(call)[1] == "int32"
    with pytest.raises(ShapeError, match="kernel_scale has 8 values; there are 6 channels"):
        conv2d(data, kernel, kernel_scale=scales(8))
    depthwise = var(8, 2, 3, 3, dtype="int8", name="w")
    conv2d(data, depthwise, groups=8, kernel_scale=scales(16))
    with pytest.raises(ShapeError, match="input_scale has 8 values; a scalar is needed"):
        conv2d(data, kernel, input_scale=scales(8))


def test_python_functions_spell_padding_as_relay_does() -> None:
    data, kernel = var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")
    for given, wanted in (((1,), [1, 1, 1, 1]), ((1, 2), [1, 2, 1, 2])):
        call = conv2d(data, kernel, padding=given)
        assert [int(size) for size in call.attrs["padding"]] == wanted


def test_transposed_convolution() -> None:
    data, weight = var(*IMAGE, dtype="uint8"), var(8, 6, 3, 3, dtype="int8", name="w")
    parameters = [whole(3), whole(0), real(0.5), scales(6)]
    call = op.conv2d_transpose(
        data, weight, *parameters, strides=(2, 2), padding=(1, 1), output_padding=(1, 0)
    )
    assert said(call) == ([1, 6, 18, 19], "int32")
    back_and_forth(call)


def test_products() -> None:
    parameters = [whole(3), zeros(5), real(0.5), scales(5)]
    call = op.dense(var(2, 4, dtype="int8"), var(5, 4, dtype="int8"), *parameters, units=5)
    assert said(call) == ([2, 5], "int32")
    back_and_forth(call)
    with pytest.raises(ShapeError, match="units is 6"):
        op.dense(var(2, 4, dtype="int8"), var(5, 4, dtype="int8"), *parameters, units=6)
    scalars = [whole(3), whole(4), real(0.5), real(0.25)]
    call = op.batch_matmul(var(2, 3, 4, dtype="int8"), var(1, 5, 4, dtype="int8"), *scalars)
    assert said(call) == ([2, 3, 5], "int32")
    assert back_and_forth(call)["transpose_b"] is True


@pytest.mark.parametrize("name", ["add", "subtract", "mul"])
def test_arithmetic_broadcasts(name: str) -> None:
    build: Callable[..., relax.Call] = getattr(op, name)
    rest = [real(0.1), whole(1), real(0.2), whole(2), real(0.3), whole(3)]
    call = build(var(2, 3, 4, dtype="uint8"), var(3, 1, dtype="uint8"), *rest)
    assert said(call) == ([2, 3, 4], "uint8")
    back_and_forth(call)
    with pytest.raises(InputError, match="rhs has dtype int8"):
        build(var(2, 3, dtype="uint8"), var(2, 3, dtype="int8"), *rest)
    with pytest.raises(ShapeError, match="do not broadcast"):
        build(var(2, 3, dtype="uint8"), var(2, 4, dtype="uint8"), *rest)
    with pytest.raises(InputError, match="lhs_zero_point has dtype float32"):
        build(var(2, 3, dtype="uint8"), var(2, 3, dtype="uint8"), rest[0], *rest[0:1], *rest[2:])


UNARY = [name for name in op.__all__ if len(inspect.signature(getattr(op, name)).parameters) == 5]


@pytest.mark.parametrize("name", [name for name in UNARY if name != "quantize"])
def test_functions_of_one_tensor_keep_its_type(name: str) -> None:
    if name == "dequantize":
        call = op.dequantize(var(2, 3, dtype="int8"), real(0.1), whole(1), out_dtype="float16")
        assert said(call) == ([2, 3], "float16")
    else:
        call = getattr(op, name)(var(2, 3, dtype="int8"), real(0.1), whole(1), real(0.2), whole(2))
        assert said(call) == ([2, 3], "int8")
    back_and_forth(call)


def test_softmax_and_leaky_relu() -> None:
    rest = [real(0.1), whole(1), real(0.2), whole(2)]
    assert back_and_forth(op.softmax(var(2, 3, dtype="int8"), *rest, axis=0)) == {"axis": 0}
    with pytest.raises(ShapeError, match="axis 2"):
        op.softmax(var(2, 3, dtype="int8"), *rest, axis=2)
    leaky = op.leaky_relu(var(2, 3, dtype="int8"), 0.5, *rest)
    assert back_and_forth(leaky) == {"alpha": 0.5}


def test_scaling_by_channel() -> None:
    call = op.quantize(var(2, 3, 4), scales(3), zeros(3), axis=1, out_dtype="uint8")
    assert said(call) == ([2, 3, 4], "uint8")
    back_and_forth(call)
    with pytest.raises(ShapeError, match="output_scale has 3 values; there are 4 channels"):
        op.quantize(var(2, 3, 4), scales(3), zeros(3))
    with pytest.raises(ShapeError, match="axis 3 is out of range"):
        op.quantize(var(2, 3, 4), real(1.0), whole(0), axis=3)
    with pytest.raises(InputError, match="data has dtype int8"):
        op.quantize(var(2, 3, dtype="int8"), real(1.0), whole(0))
    with pytest.raises(InputError, match='out_dtype is "float32"'):
        op.quantize(var(2, 3), real(1.0), whole(0), out_dtype="float32")
    # A scalar has one channel, whatever the axis.
    assert said(op.quantize(var(), real(1.0), whole(0))) == ([], "int8")


def test_requantize() -> None:
    data = var(1, 6, 4, 4, dtype="int32")
    call = op.requantize(data, scales(6), whole(0), real(0.1), whole(3), axis=1, rounding="UPWARD")
    assert said(call) == ([1, 6, 4, 4], "int8")
    assert back_and_forth(call)["rounding"] == "UPWARD"
    with pytest.raises(InputError, match='rounding is "DOWN"'):
        op.requantize(data, real(1.0), whole(0), real(0.1), whole(3), rounding="DOWN")
    with pytest.raises(ShapeError, match="output_scale has 6 values"):
        op.requantize(data, real(1.0), whole(0), scales(6), whole(3))
    with pytest.raises(InputError, match="data has dtype float32"):
        op.requantize(var(2, 3), real(1.0), whole(0), real(0.1), whole(3))


def test_concatenate() -> None:
    parts = [var(2, 3, dtype="uint8", name="a"), var(2, 5, dtype="uint8", name="b")]
    rest = [[real(0.1), real(0.2)], [whole(1), whole(2)], real(0.3), whole(3)]
    call = op.concatenate(parts, *rest, axis=1)
    assert said(call) == ([2, 8], "uint8")
    back_and_forth(call)
    together = relax.Var("t", relax.TupleType([part.ty for part in parts]))
    assert said(op.concatenate(together, *rest, axis=-1)) == ([2, 8], "uint8")
    with pytest.raises(ShapeError, match=r"data\.1 has shape"):
        op.concatenate(parts, *rest, axis=0)
    with pytest.raises(InputError, match="input_scales has 1 fields, data 2"):
        op.concatenate(parts, rest[0][:1], *rest[1:], axis=1)
    with pytest.raises(InputError, match="data is no tuple"):
        op.concatenate(parts[0], *rest, axis=1)


def test_average_pooling() -> None:
    rest = [real(0.1), whole(1), real(0.2), whole(2)]
    call = op.avg_pool2d(
        var(1, 9, 9, 3, dtype="int8"), *rest, (2, 2), (2, 2), (0, 0), (1, 1), ceil_mode=True
    )
    assert said(call) == ([1, 5, 5, 3], "int8")
    back_and_forth(call)


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
    assert not graph.known(bare)


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"channels": 7}, ShapeError, "channels is 7"),
        ({"kernel_size": (1, 1)}, ShapeError, "kernel_size is"),
        ({"groups": 3}, ShapeError, "groups is 3"),
        ({"groups": 0}, ShapeError, "groups is 0"),
        ({"groups": 2}, ShapeError, "weight has 8 input channels"),
        ({"strides": (0, 1)}, ShapeError, "strides is"),
        ({"padding": (1, 2, 3)}, ShapeError, "padding"),
        ({"padding": (-1,)}, ShapeError, "negative"),
        ({"dilation": (9, 9)}, ShapeError, "larger than"),
        ({"data_layout": "NCHW4c"}, ShapeError, "NCHW4c"),
        ({"kernel_layout": "HWIO"}, ShapeError, "input channels"),
        ({"out_dtype": "int8"}, InputError, "out_dtype"),
        ({"input_zero_point": real(1.0)}, InputError, "input_zero_point has dtype float32"),
        ({"kernel_scale": whole(1)}, InputError, "kernel_scale has dtype int32"),
        ({"input_scale": var(1, 1)}, ShapeError, "input_scale has 2 dimensions"),
    ],
)
def test_convolution_names_what_does_not_fit(
    more: dict[str, Any], kind: type[TvmlabError], words: str
) -> None:
    data, kernel = var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")
    with pytest.raises(kind, match=words) as caught:
        conv2d(data, kernel, **more)
    assert "qnn.conv2d" in (caught.value.where or "")


def test_operands_of_other_kinds_are_refused() -> None:
    pair = relax.Tuple([var(2), var(3)])
    with pytest.raises(InputError, match="data is no tensor"):
        op.quantize(pair, real(1.0), whole(0))
    with pytest.raises(InputError, match="weight has dtype float32"):
        conv2d(var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, name="w"))
    with pytest.raises(ShapeError, match="data has 3 dimensions"):
        conv2d(var(8, 9, 10, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w"))


def test_errors_cross_tvm_whole() -> None:
    call = relax.Call(
        conv2d(var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")).op,
        [var(1, 1, 1, dtype="int8")] * 6,
        conv2d(var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")).attrs,
    )
    with pytest.raises(ShapeError) as caught:
        relax.BlockBuilder().normalize(call)
    assert caught.value.where == "qnn.conv2d, operand data"


def test_the_reference_has_every_function() -> None:
    assert set(op.__all__) <= set(arithmetic.__all__)


def test_every_function_has_a_row_with_its_arguments() -> None:
    rows = {row.name.removeprefix("qnn."): row for row in table.rows() if "qnn." in row.name}
    assert set(rows) == set(op.__all__)
    for name, row in rows.items():
        function = inspect.signature(getattr(op, name)).parameters
        order = row.signature or (*row.operands, *row.by_name)
        hidden = {"transpose_a", "transpose_b"} if name == "batch_matmul" else set()
        assert list(function) == [argument for argument in order if argument not in hidden], name
        for argument, parameter in function.items():
            if argument in row.by_name and parameter.default is not parameter.empty:
                usual = (row.defaults or {}).get(argument, row.by_name[argument].default)
                given = parameter.default
                assert (list(given) if isinstance(given, tuple) else given) == usual, argument


def test_rows_make_what_the_functions_do() -> None:
    data, kernel = var(*IMAGE, dtype="int8"), var(6, 8, 3, 3, dtype="int8", name="w")
    rest = [whole(3), whole(0), real(0.5), real(0.25)]
    first = op.conv2d(data, kernel, *rest, kernel_size=(3, 3), channels=6, strides=(2, 2))
    second = made(
        "qnn.conv2d",
        data,
        kernel,
        *rest,
        kernel_size=[3, 3],
        channels=6,
        strides=[2, 2],
        padding=[0, 0, 0, 0],
        out_dtype="int32",
    )
    assert tvm_ffi.structural_equal(first, second, map_free_vars=True)
    with pytest.raises(RelayError, match="out_dtype"):
        made("qnn.quantize", var(2), real(1.0), whole(0), scale=3)


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
