"""What code written for Relay reads and makes, where only its imports were changed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from tvmlab import relay
from tvmlab.errors import RelayError
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


INT8 = relay.var("x", shape=(2, 3), dtype="int8")
SCALES = [relay.const(1.0), relay.const(0), relay.const(1.0), relay.const(0)]


@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: relay.cast(INT8, dtype),
        lambda dtype: relay.qnn.op.requantize(relay.cast(INT8, "int32"), *SCALES, out_dtype=dtype),
        lambda dtype: relay.var("y", shape=(2, 3), dtype=dtype),
    ],
)
@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_a_dtype_is_that_of_a_type_or_its_name(make: Any, name: str) -> None:
    read = relay.TensorType((2, 3), name).dtype
    assert isinstance(read, ir.PrimType)
    assert make(read).ty == make(name).ty == relay.TensorType((2, 3), name)
    assert str(relay.const(1, read).ty.dtype) == name


def test_a_dtype_is_no_other_type() -> None:
    with pytest.raises(RelayError, match="'dtype' of cast is a string"):
        relay.cast(INT8, relay.TensorType((2,), "int8"))


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: relay.reshape(relay.var("y", shape=(6,)), shape),
        lambda shape: relay.broadcast_to(relay.var("y", shape=(3,)), shape),
    ],
)
def test_a_shape_is_that_of_a_type_or_numbers(make: Any) -> None:
    wanted = relay.TensorType((2, 3))
    assert make(INT8.checked_type.shape).ty == make([2, 3]).ty == wanted


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
