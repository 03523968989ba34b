"""Code written for Relay, with changed imports only: its attributes, results and errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import ir, relax

from tests.relay.test_standin import script
from tvmlab import relay
from tvmlab.errors import InputError, RelayError
from tvmlab.relay.aliases import ALIASES


def normalized(body: Any, *params: relax.Var) -> relax.Function:
    """Make a function as modules hold it, with bindings."""
    return relay.IRModule.from_expr(relay.Function(list(params), body))["main"]


def test_a_functions_body_is_read_as_the_graph_that_it_is() -> None:
    x = relay.var("x", shape=(2, 3))
    body = normalized(relay.nn.relu(relay.add(x, relay.const(np.float32(2)))), x).body
    assert isinstance(body, relax.SeqExpr)
    assert isinstance(body, relay.Call)
    assert not isinstance(body, (relay.Tuple, relay.Constant, relay.Var))
    assert body.op.same_as(relay.op.get("nn.relu"))
    assert body.args[0].op.same_as(relay.op.get("add"))  # the producer, not a variable
    assert body.args[0].args[1].data.numpy() == 2

    let = relay.Let(relay.var("y"), relay.abs(x), relay.nn.relu(x))
    assert isinstance(let, relay.Let)
    assert not isinstance(let, relay.Call)
    pair = normalized(relay.Tuple([relay.abs(x), x]), x).body
    assert isinstance(pair, relay.Tuple)
    assert len(pair.fields) == 2
    field = normalized(relay.TupleGetItem(relay.split(x, 3, axis=1).astuple(), 2), x).body
    assert isinstance(field, relay.TupleGetItem)
    assert field.index == 2
    with pytest.raises(AttributeError):
        _ = pair.op


def test_the_functions_beneath_relays_take_all_in_order() -> None:
    x = relay.var("x", shape=(4, 6))
    below = relay.op._make.concatenate(relay.Tuple([x, x]), 1)
    assert tvm_ffi.structural_equal(below, relay.concatenate([x, x], axis=1))
    assert tvm_ffi.structural_equal(relay.op.nn._make.softmax(x, 0), relay.nn.softmax(x, axis=0))
    with pytest.raises(RelayError, match="no operator"):
        _ = relay.op._make.no_such_operator


INT8 = relay.var("x", shape=(2, 3), dtype="int8")


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_a_dtype_is_that_of_a_type_or_its_name(name: str) -> None:
    read = relay.TensorType((2, 3), name).dtype
    assert isinstance(read, ir.PrimType)
    for made in (relay.cast(INT8, read), relay.var("y", shape=(2, 3), dtype=read)):
        assert made.ty == relay.TensorType((2, 3), name)
    assert str(relay.const(1, read).ty.dtype) == name
    with pytest.raises(RelayError, match="'dtype' of cast must be a string"):
        relay.cast(INT8, relay.TensorType((2,), "int8"))


def test_a_shape_is_that_of_a_type_or_numbers() -> None:
    flat = relay.var("y", shape=(6,))
    for shape in (INT8.checked_type.shape, [2, 3]):
        assert relay.reshape(flat, shape).ty == relay.TensorType((2, 3))


def test_old_names_give_what_is_there() -> None:
    x = relay.var("x", shape=(2, 3))
    call = relay.add(x, relay.const(np.float32(2)))
    function = relay.Function([x], call)
    assert x.name_hint == x.name == "x"
    assert x.type_annotation.same_as(x.ty)
    assert relay.var("y").type_annotation is None
    assert call.args[1].data.numpy() == call.args[1].data.asnumpy() == 2
    assert call.checked_type.concrete_shape == (2, 3)
    assert function.ret_type.same_as(function.ret_ty)
    assert function.checked_type.arg_types[0].same_as(x.ty)
    assert (list(function.type_params), list(call.type_args)) == ([], [])
    assert "add(%x, 2f" in relay.from_expr(function).astext()


def test_old_import_paths_lead_to_what_is_there() -> None:
    from tvmlab.relay.backend import Executor
    from tvmlab.relay.op.contrib import get_pattern_table
    from tvmlab.relay.op.contrib.register import get_pattern_table as again
    from tvmlab.relay.ty import TensorType

    assert Executor is relay.backend.Executor
    assert get_pattern_table is again is relay.op.contrib.register.get_pattern_table
    assert TensorType is relay.TensorType


def test_nothing_that_was_there_is_changed_and_nothing_is_added_without_the_import() -> None:
    kinds = [(kind.__module__, kind.__name__, name) for kind, name, _ in ALIASES]
    code = f"""
import importlib, tvmlab
for module, kind, name in {kinds!r}:
    assert not hasattr(getattr(importlib.import_module(module), kind), name), name
from tvm import ir, relax
before = {{kind: dict(vars(kind)) for kind in (ir.Expr, ir.Call, ir.IRModule, relax.Function)}}
import tvmlab.relay
for kind, names in before.items():
    assert all(vars(kind)[name] is value for name, value in names.items())
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert isinstance(relax.Var("x"), ir.Expr)


# What errors and printed expressions say

X, Z = relay.var("x", shape=(2, 3)), relay.var("z", shape=(5,))
W = relay.var("w", shape=(4, 3))


def test_a_free_variable_is_named() -> None:
    free = relay.Function([X], relay.nn.dense(X, W))
    with pytest.raises(RelayError, match="nothing binds 'w'"):
        relay.IRModule.from_expr(free)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.add(X, Z), ("add of", "(2, 3)", "(5,)")),
        (lambda: relay.concatenate([X, Z], 0), ("concatenate of", "ndim 2 and 1")),
        (lambda: relay.nn.dense(X, Z), ("relay.nn.dense of", "(5,)", "weight has 1 dim")),
        (lambda: relay.fromtext(f"{HEAD} %x + {FIVE} }}"), ("In relax.add",)),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(RelayError) as caught:
        make()
    told = str(caught.value)
    assert all(word in told for word in words), told
    assert "ir.Op(" not in told


FIVE = 'ones(shape=[5], dtype="float32")'
HEAD = "def @main(%x: Tensor[(2, 3), float32]) {"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("garbage", "did you mean"),
        ("fast_exp(1f", "is the text complete"),
        ('#[version = "0.0.5"\ndef @main() { 1f }', "#[version ="),
        ("def @main() { 1f }\n#[metadata", "#[metadata]"),
    ],
)
def test_what_the_text_should_say(text: str, fix: str) -> None:
    with pytest.raises(RelayError) as caught:
        relay.fromtext(text)
    assert fix in str(caught.value.fix)
    assert caught.value.line is not None


def test_expressions_print_as_relay_printed_them(tmp_path: Any) -> None:
    printed = script(
        tmp_path,
        "import tvm\n"
        "from tvm import relay\n"
        "from tvm.relay.dataflow_pattern import is_op, wildcard\n"
        "a = relay.var('a', shape=(2,))\n"
        "e = relay.add(relay.multiply(a, a), a)\n"
        "print(e)\n"
        "print(tvm.ir.TupleType([e.checked_type, a.checked_type]))\n"
        "print(relay.split(e, (1,))[0])\n"
        "print(is_op('multiply')(wildcard(), wildcard()).partition(e))\n"
        "print(tvm.te.exp(tvm.te.var('x', 'float32')))\n",
    ).stdout
    lines = [line.partition(" /*")[0].rstrip(";") for line in printed.splitlines()]
    assert lines[:4] == [
        "free_var %a: Tensor[(2), float32]", "%0 = multiply(%a, %a)", "add(%0, %a)",
        "(Tensor[(2), float32], Tensor[(2), float32])",
    ]  # fmt: skip
    assert "%2.0" in lines
    assert 'PartitionedFromPattern="multiply_"' in printed
    assert "ir.Call" not in printed
    assert lines[-1] == "T.exp(x)"


def test_an_import_of_such_a_name_keeps_the_words() -> None:
    with pytest.raises(ImportError, match="does not carry") as caught:
        from tvmlab.relay.transform import ToMixedPrecision  # noqa: F401
    assert "tvm.relax.transform.ToMixedPrecision" in str(caught.value)
    with pytest.raises(ImportError, match=r"did you mean relay\.transform\.FuseOps\?"):
        from tvmlab.relay.transform import FuseOpz  # type: ignore[attr-defined]  # noqa: F401


def test_near_names_are_advised() -> None:
    for ask, name in (
        (lambda: relay.nn.con2d, "nn.conv2d"),
        (lambda: relay.ExprMutatr, "relay.ExprMutator"),
        (lambda: relay.frontend.from_onx, "relay.frontend.from_onnx"),
    ):
        with pytest.raises(AttributeError, match=name):
            ask()


@pytest.mark.parametrize(
    ("call", "what", "fix"),
    [
        ("meshgrid((%x, %x))", "does not carry", "tvm.relax.op.meshgrid"),
        ("segment_sum(%x, %x)", "does not carry", "no counterpart"),
        ("prelu(%x)", "not known here", "did you mean nn.prelu"),
    ],
)
def test_an_operator_of_relays_that_is_not_carried(call: str, what: str, fix: str) -> None:
    with pytest.raises(RelayError, match=what) as caught:
        relay.fromtext(f"def @main(%x: Tensor[(2, 3), float32]) {{ {call} }}")
    assert fix in str(caught.value.fix)
    assert "line 1, column" in str(caught.value)


def test_text_is_read_by_relays_names() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { abs(%x) }'
    assert relay.parse(text, "notes.relay")["main"].body.op.same_as(relay.op.get("abs"))
    assert relay.parse_expr("1f + 2f").op.same_as(relay.op.get("add"))


def test_what_is_no_text() -> None:
    for text, what in ((None, "not a NoneType"), (b"\xff\xfe", "not UTF-8")):
        with pytest.raises(InputError, match=what):
            relay.fromtext(text)  # type: ignore[arg-type]
