"""Relay's Python names over Relax's graphs: expressions, operators, modules, analyses, visitors."""

from __future__ import annotations

import inspect
import subprocess
import sys
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir
from tvmlab.relay.op.annotation import __name__ as annotation_name

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import gone, table

X = (1, 3, 8, 8)


def test_the_ways_to_make_a_variable() -> None:
    by_shape = relay.var("x", shape=[1, 2])
    for same in (
        relay.Var("x", relay.TensorType([1, 2])),
        relay.var("x", relay.TensorType([1, 2])),
        relay.var("x", shape=(1, np.int64(2)), dtype="float32"),
    ):
        assert isinstance(same, relay.Var)
        assert same.ty == by_shape.ty
    assert relay.var("x", "int8").ty == relay.scalar_type("int8")
    assert relay.var("x").ty.is_missing()
    n, m = tvm.te.var("n"), relay.Any()
    dynamic = relay.TensorType((n, m, n), "int8")
    assert dynamic.shape[0].same_as(dynamic.shape[2])
    assert not dynamic.shape[0].same_as(dynamic.shape[1])


def test_constants() -> None:
    for value, dtype, wanted in (
        (1, None, "int32"),
        (1.5, None, "float32"),
        ([1, 2], None, "int32"),
        (1, "int64", "int64"),
        (np.zeros(2), None, "float32"),
        (np.zeros(2), "float64", "float64"),
        (tvm.runtime.tensor(np.zeros(2)), None, "float64"),
    ):
        made = relay.const(value, dtype)
        assert isinstance(made, relay.Constant)
        assert str(made.ty.dtype) == wanted
    data = np.arange(3.0)
    np.testing.assert_array_equal(relay.Constant(data).value.numpy(), data)


def test_arguments_are_relays() -> None:
    found = inspect.signature(relay.nn.conv2d)
    assert list(found.parameters) == [
        *("data", "weight", "strides", "padding", "dilation", "groups", "channels"),
        *("kernel_size", "data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ]
    assert found.parameters["strides"].default == (1, 1)
    padding = "(data, pad_width, pad_value=0, pad_mode='constant')"
    assert str(inspect.signature(relay.nn.pad)) == padding
    assert str(inspect.signature(relay.gather)) == "(data, axis, indices)"
    assert "today it is ``relax.nn.conv2d``" in str(relay.nn.conv2d.__doc__)
    assert relay.op.nn.conv2d is relay.nn.conv2d
    assert relay.op.get("nn.relu").same_as(ir.Op.get("relax.nn.relu"))
    assert relay.op.op.get("add").name == "relax.add"
    assert annotation_name == "tvmlab.relay.op.annotation"


@pytest.mark.parametrize("name", table.names())
def test_every_row_has_a_function(name: str) -> None:
    function = relay.op.function(name)
    row = table.find(name)
    assert row is not None
    given = set(inspect.signature(function).parameters)
    assert given <= {*row.operands, *row.by_name}
    assert {a.name for a in row.attributes if a.default is table.REQUIRED} <= given | set(
        row.defaults or ()
    )
    assert name.rpartition(".")[2] == function.__name__


def test_numbers_stand_for_all_directions() -> None:
    x, w = relay.var("x", shape=X), relay.var("w", shape=(4, 3, 3, 3))
    one = relay.nn.conv2d(x, w, strides=2, padding=1)
    two = relay.nn.conv2d(x, w, (2, 2), padding=[1, 1])
    assert tvm_ffi.structural_equal(one, two)
    assert one.ty == relay.TensorType((1, 4, 4, 4))
    assert relay.nn.max_pool2d(x, 2, 2).ty == relay.TensorType((1, 3, 4, 4))
    assert relay.sum(x, axis=1).ty == relay.TensorType((1, 8, 8))
    assert relay.reshape(x, relay.const([3, 64])).ty == relay.TensorType((3, 64))


def test_results_that_are_tuples() -> None:
    x = relay.var("x", shape=X)
    first, *rest = relay.split(x, 4, axis=2)
    assert first.ty == relay.TensorType((1, 3, 2, 8))
    assert len(rest) == 3
    again = relay.concatenate([first, *rest], axis=2)
    assert again.ty == x.ty
    assert relay.concatenate(relay.split(x, 2, axis=3), 3).ty == x.ty
    pair = relay.split(relay.var("untyped"), (1, 2))
    assert len(pair) == 3
    assert isinstance(pair[-1], relay.TupleGetItem)
    with pytest.raises(IndexError):
        pair[3]
    assert isinstance(relay.nn.dropout(x), relay.TupleGetItem)
    norm = relay.nn.batch_norm(x, *(relay.var(name) for name in "abcd"))
    assert isinstance(norm.astuple(), relay.Call)
    assert relay.Tuple([norm]).ty == relay.TupleType([norm.astuple().ty])


def test_weights_without_a_type_get_one() -> None:
    x = relay.var("x", shape=(1, 8, 8, 6), dtype="float16")
    w, b, g = relay.var("w"), relay.var("b"), [relay.var(name) for name in "abcd"]
    conv = relay.nn.conv2d(
        x, w, channels=4, kernel_size=3, groups=2, data_layout="NHWC", kernel_layout="HWIO"
    )
    assert w.ty == relay.TensorType((3, 3, 3, 4), "float16")
    relay.nn.batch_norm(conv, *g, axis=3)
    assert g[3].ty == relay.TensorType((4,), "float16")
    relay.nn.bias_add(conv, b, axis=-1)
    assert b.ty == relay.TensorType((4,), "float16")
    dense = relay.var("dense")
    relay.nn.dense(relay.nn.batch_flatten(conv), dense, units=5)
    assert dense.ty == relay.TensorType((5, 6 * 6 * 4), "float16")
    untold = relay.var("w")
    relay.nn.conv2d(x, untold)
    assert untold.ty.is_missing()


def test_pythons_operators_get_types_when_they_are_used() -> None:
    x = relay.var("x", shape=X)
    y = (x + x) * x - x
    assert y.ty.is_missing()
    relay.nn.relu(y)
    assert y.ty == x.ty
    made = relay.Function([x], relay.Tuple([-x, x < x]))
    assert made.ret_ty == relay.TupleType([x.ty, relay.TensorType(X, "bool")])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda x: relay.add(x, 1), "a int is not an expression"),
        (lambda x: relay.add(x), "missing a required argument: 'rhs'"),
        (lambda x: relay.Call(relay.op.get("nn.softmax"), [x]), "has attributes, and none"),
        (lambda x: relay.sum(x, axis="one"), "'axis' of sum must be integers"),
        (lambda x: relay.reshape(x, relay.var("n", shape=(2,), dtype="int32")), "computed by"),
        (lambda x: relay.Function([x + x], x), "a parameter of a function is a Call"),
        (lambda x: relay.Function([x], x, type_params=["T"]), "carry type_params"),
        (lambda x: relay.op.get("nn.relux"), "tvmlab.relay has no operator 'nn.relux'"),
        (lambda x: relay.var("x", "float32", shape=(1,)), "either a type or a shape"),
        (lambda x: relay.TensorType(("n",)), "a dimension is a str"),
        (lambda x: relay.const(object()), "cannot become a constant"),
    ],
)
def test_what_is_refused(make: Any, what: str) -> None:
    with pytest.raises(RelayError, match=what):
        make(relay.var("x", shape=X))


def test_relay_qnn_has_the_names_of_its_op() -> None:
    assert relay.qnn.requantize_config is relay.qnn.op.requantize_config
    assert relay.qnn.add is not relay.add
    for name in (row for row in table.names() if row.startswith("qnn.")):
        assert getattr(relay.qnn, name[4:]) is getattr(relay.qnn.op, name[4:]), name
    with pytest.raises(RelayError, match=r"does not carry relay\.qnn\.simulated_quantize"):
        relay.qnn.simulated_quantize  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "fix"),
    [
        (relay.backend, "aot", "tvm.relax.VirtualMachine"),
        (relay.expr, "CallWithFields", "tvm.relax.Call"),
        (relay.op, "register_convert_op_layout", "FRelaxInferLayout"),
        (relay.op.contrib, "ethosn", "pattern table"),
        (relay.transform, "ToMixedPrecision", "tvm.relax.transform.ToMixedPrecision"),
        (relay.frontend, "from_mxnet", "export the model to ONNX"),
        (relay.vision, "roi_pool", "tvm.relax.op.vision.roi_pool"),
        (relay.nn, "correlation", "no counterpart"),
    ],
)
def test_names_that_are_gone(module: Any, name: str, fix: str) -> None:
    with pytest.raises(RelayError, match="does not carry") as caught:
        getattr(module, name)
    assert fix in str(caught.value.fix)
    assert name in caught.value.what
    assert isinstance(caught.value, AttributeError)
    assert getattr(module, name, 3) == 3
    with pytest.raises(AttributeError, match=r"tvmlab\.relay has no .*a_name_that_never_was"):
        module.a_name_that_never_was  # noqa: B018


@pytest.mark.parametrize("name", [name for name in gone.ROWS if name.startswith("relay.")])
def test_every_row_is_in_an_error(name: str) -> None:
    with pytest.raises(RelayError) as caught:
        attrgetter(name.removeprefix("relay."))(relay)
    assert (gone.ROWS[name].today or "no counterpart") in str(caught.value.fix)


def test_importing_it_takes_no_option() -> None:
    code = (
        "import sys\nfor name in ('onnx', 'torch', 'tflite'): sys.modules[name] = None\n"
        "from tvmlab import relay\nx = relay.var('x', shape=(2,))\nrelay.nn.relu(x)\n"
        "relay.testing.resnet, relay.build, relay.graph_executor, relay.frontend\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
