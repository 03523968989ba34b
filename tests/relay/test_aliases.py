"""Old names of what TVM's objects have: there with `tvmlab.relay`, and only then."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
from tvm import ir, relax

from tvmlab import relay
from tvmlab.relay import pattern_table
from tvmlab.relay.aliases import ALIASES


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
    for path, name, found in (
        ("op.contrib", "get_pattern_table", pattern_table.get_pattern_table),
        ("op.contrib.register", "register_pattern_table", pattern_table.register_pattern_table),
        ("expr", "bind", relay.bind),
    ):
        assert getattr(importlib.import_module(f"tvmlab.relay.{path}"), name) is found
    assert relay.op.contrib.register.get_pattern_table is pattern_table.get_pattern_table
    for module in (relay.op.contrib, relay.expr):
        assert not hasattr(module, "no_such_name")


def test_nothing_that_was_there_is_changed_and_nothing_is_added_without_the_import() -> None:
    kinds = [(kind.__module__, kind.__name__, name) for kind, name, _ in ALIASES]
    code = (
        ("import importlib, tvmlab, tvmlab.ir.table\n" if False else "import importlib, tvmlab\n")
        + f"""
for module, kind, name in {kinds!r}:
    assert not hasattr(getattr(importlib.import_module(module), kind), name), name
from tvm import ir, relax
before = {{kind: dict(vars(kind)) for kind in (ir.Expr, ir.Call, ir.IRModule, relax.Function)}}
import tvmlab.relay
for kind, names in before.items():
    assert all(vars(kind)[name] is value for name, value in names.items())
"""
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert isinstance(relax.Var("x"), ir.Expr)
