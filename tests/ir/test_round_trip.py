"""Random modules printed and read again."""

from __future__ import annotations

import tvm
from hypothesis import HealthCheck, given, settings
from tvm import relax

from tests.ir.nested import nested_modules
from tests.ir.rows import modules
from tests.ir.texts import equal, same_again
from tests.short import examples
from tvmlab.ir.text.printer import astext
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
