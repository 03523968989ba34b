"""Random modules of the operator table, printed and read: the same modules, the same text."""

from __future__ import annotations

import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from tvm import relax

from tests.ir.nested import nested_modules
from tests.ir.rows import modules
from tests.short import examples
from tvmlab.relay import astext, fromtext, transform

ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def same_again(mod: tvm.IRModule) -> None:
    """Assert that a module is read as it was printed, with its types and without."""
    text = astext(mod)
    again = fromtext(text)
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True), text
    assert astext(again) == text
    bare = astext(mod, types=False)
    assert tvm_ffi.structural_equal(fromtext(bare), mod, map_free_vars=True), bare


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
    assert tvm_ffi.structural_equal(inferred, mod, map_free_vars=True), astext(mod)
