"""Random modules of the operator table, printed and read: the same modules, the same text."""

from __future__ import annotations

import tvm
import tvm_ffi
from helpers_relay import modules
from hypothesis import HealthCheck, given, settings

from tvmlab.relay import astext, fromtext


@given(modules())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_module_is_read_as_it_was_printed(mod: tvm.IRModule) -> None:
    text = astext(mod)
    again = fromtext(text)
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True), text
    assert astext(again) == text
    bare = astext(mod, types=False)
    assert tvm_ffi.structural_equal(fromtext(bare), mod, map_free_vars=True), bare
