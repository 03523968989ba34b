"""Modules printed and read again: random ones come back, and Relax of its own computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.ir.nested import nested_modules
from tests.ir.rows import modules
from tests.ir.texts import equal, same_again
from tests.short import examples
from tvmlab.ir.graph import to_anf, typed
from tvmlab.ir.text.printer import astext
from tvmlab.ir.text.reader import fromtext
from tvmlab.relay import transform

ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@given(modules())
@settings(ANY, max_examples=examples(400))
def test_a_module_is_read_as_it_was_printed(mod: tvm.IRModule) -> None:
    same_again(mod)


@given(nested_modules())
@settings(ANY, max_examples=examples(100))
def test_calls_of_nested_functions_are_read_as_they_were_printed(mod: tvm.IRModule) -> None:
    relax.analysis.well_formed(mod)
    same_again(mod)
    inferred = transform.InferType()(mod)
    assert equal(inferred, mod), astext(mod)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "gelu": (op.nn.gelu, [(3, 5)]),
    "silu": (op.nn.silu, [(3, 5)]),
    "square": (op.square, [(3, 5)]),
    "argmax": (lambda x: op.argmax(x, 1), [(3, 5)]),
    "argmin": (lambda x: op.argmin(x, None, keepdims=True), [(3, 5)]),
    "flatten": (op.flatten, [(3, 5, 2)]),
    "a layer": (op.matmul, [(4, 3, 5), (5, 2)]),
    "a stack": (op.matmul, [(2, 4, 3, 5), (2, 4, 5, 2)]),
    "a stack over one": (op.matmul, [(2, 4, 3, 5), (4, 5, 2)]),
    "one over a stack": (op.matmul, [(3, 5), (4, 5, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_spelled_out_computes_the_same(name: str) -> None:
    make, shapes = CASES[name]
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    function = to_anf(params, typed(make(*params))).with_attr("global_symbol", "main")
    mod = tvmlab.relay.from_expr(function)
    text = astext(mod)
    again = fromtext(text)
    assert not equal(again, mod)
    assert astext(again) == text
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape, dtype=np.float32) for shape in shapes]
    ours, theirs = (tvmlab.compile(each)(*given) for each in (mod, again))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
