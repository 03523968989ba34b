"""Operators of ours, expanded before anything looks at the graph: IR in, IR out, and compiled."""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.ir.cases import agree, inputs, module
from tests.ir.reference import made
from tests.ir.rows import modules
from tests.ir.test_operators import ELEMENTS, REDUCED
from tvmlab.ir import graph
from tvmlab.ir.dialect import ExpandOperators


def has_relay_operators(mod: tvm.IRModule) -> bool:
    return not tvm_ffi.structural_equal(ExpandOperators()(mod), mod)


def test_a_call_becomes_what_it_stands_for() -> None:
    @I.ir_module
    class Want:
        @R.function(private=True)
        def main(x: R.Tensor((2, 3), "bool")) -> R.Tensor((2,), "bool"):
            with R.dataflow():
                a = R.astype(x, "uint8")
                b = R.max(a, axis=[1])
                c = R.astype(b, "bool")
                R.output(c)
            return c

    x = relax.Var("x", relax.TensorType((2, 3), "bool"))
    got = tvm.IRModule({"main": graph.to_anf([x], made("any", x, axis=[1]))})
    assert has_relay_operators(got)
    expanded = ExpandOperators()(got)
    tvm.ir.assert_structural_equal(expanded, Want)
    assert not has_relay_operators(expanded)
    tvm.ir.assert_structural_equal(ExpandOperators()(expanded), expanded)


def test_expansions_reach_into_branches_nested_functions_and_tuples() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    y = relax.Var("y", relax.TensorType((2, 3), "float32"))
    inner = graph.to_anf([y], made("round", y))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        nested = builder.emit(inner)
        found = builder.emit(relax.Call(nested, [x]))
        both = builder.emit(made("split", found, indices_or_sections=1))
        builder.emit_func_output(builder.emit(relax.TupleGetItem(both, 0)))
    expanded = ExpandOperators()(builder.get())
    assert not has_relay_operators(expanded)
    relax.analysis.well_formed(expanded)
    tvm.ir.assert_structural_equal(expanded["main"].ret_ty, x.ty)


@given(modules())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_expanding_leaves_types_as_they_were(mod: tvm.IRModule) -> None:
    expanded = ExpandOperators()(mod)
    relax.analysis.well_formed(expanded)
    assert not has_relay_operators(expanded)
    tvm.ir.assert_structural_equal(expanded["main"].ret_ty, mod["main"].ret_ty)


def test_compile_gives_the_same_numbers_and_the_kernels_of_plain_operators() -> None:
    found = {one.name: one for one in (*ELEMENTS, *REDUCED) if has_relay_operators(module([one]))}
    assert set(found) >= {"round", "argmax", "where", "log2", "mean"}
    ours = list(found.values())
    mod = module(ours)
    compiled = tvmlab.compile(mod)
    for one, got in zip(ours, compiled(*inputs(ours)), strict=True):
        agree(one, np.asarray(got))
    plain = tvmlab.compile(ExpandOperators()(mod))
    assert str(compiled.summary) == str(plain.summary)
