"""Comparing a float module with its integer form, operator by operator."""

from __future__ import annotations

from collections import Counter

import numpy as np
import tvm
from tvm import relax

from tests.qnn.run import run
from tvmlab.qnn.analysis import _bindings
from tvmlab.qnn.transform.rewrite import Rewriter


def both(mod, rounding="None"):
    """Rewrite `main`; give the integer module, and what its aliases stand for, by name."""
    rewriter = Rewriter(rounding)
    function = rewriter.function(mod["main"])
    # Names need not be unique: a value that nothing read is gone, and another may have its name.
    kept = {*function.params, *rewriter.aliases, *(var for var, _ in _bindings(function.body))}
    counts = Counter(var.name for var in kept)
    aliases = {
        var.name: expr.name
        for var, expr in rewriter.aliases.items()
        if isinstance(expr, relax.Var) and expr in kept and counts[expr.name] == 1
    }
    return tvm.IRModule({"main": function}), aliases


def differences(mod, *inputs, rounding="None"):
    """Give, for each quantize of `mod`, how many steps the integer form is off, and the results.

    Each quantize is computed from the integers that the integer form had before it, so that one
    operator's rounding is seen and not what it becomes further on.
    """
    integer, aliases = both(mod, rounding)
    got, integers = run(integer, *inputs)
    for name, other in aliases.items():
        while other in aliases:
            other = aliases[other]
        if name not in integers and other in integers:
            integers[name] = integers[other]
    whole = {k: v for k, v in integers.items() if not isinstance(v, tuple) and v.dtype.kind in "iu"}
    want, floats = run(mod, *inputs, forced=whole)
    steps = {}
    for name, value in floats.items():
        if name in whole and value.dtype.kind in "iu":
            steps[name] = np.abs(value.astype(np.int64) - whole[name].astype(np.int64))
    return steps, got, want
