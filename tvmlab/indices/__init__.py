"""Run-time checks of indices, and of sizes that are known only at run time.

Upstream's kernels do not check indices, so an index that is negative or too large accesses memory
outside the tensor. `CheckIndices` puts a small function before each operator of
`tvmlab.indices.operators`. The function counts negative indices from the end of the axis, as
Python does, and raises `tvmlab.errors.OutOfRangeError` where an index is outside. The check is an
assertion in TIR, so it also holds in a saved executable and in C++.

Upstream's importers assume that symbolic sizes fit: that a slice with a symbolic bound lies inside
its tensor, or that a tensor can be reshaped. These assumptions become assertions, see
`tvmlab.indices.loops`.

A kernel on a GPU cannot raise an error: there, indices are clipped, and sizes stay unchecked.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax

from .checker import Checker, not_below_zero

__all__ = ["CheckIndices", "NormalizeIndices", "not_below_zero"]


@tvm.transform.module_pass(opt_level=0)
class NormalizeIndices:
    """Make constant indices below zero positive, as upstream's loops need them.

    Upstream's ONNX importer adds the size of the axis to indices below zero, which lets twice the
    range through. This is removed, and `CheckIndices` counts from the end instead.

    With `from_end`, indices below zero count from the end. Otherwise they are errors. A constant
    index outside of its axis is a `ModelError`.
    """

    def __init__(self, from_end: bool = True) -> None:
        self.from_end = from_end

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=False, from_end=self.from_end)


@tvm.transform.module_pass(opt_level=0)
class CheckIndices:
    """Check every index of a module at run time, and normalize the constant ones now.

    `CompileError` where a constant index is outside of its axis, the shapes of operands cannot fit,
    or an operator reads at indices that cannot be checked.
    """

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=True)


def _rewritten(mod: ir.IRModule, *, check: bool, from_end: bool = True) -> ir.IRModule:
    checker = Checker(mod, check, from_end)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and checker.begin(function):
            made = checker.visit_expr(function)
            # A slice can have another size than the one that the importer assumed.
            made = relax.Function(made.params, made.body, None, made.is_pure, made.attrs)
            checker.builder_.update_func(name, made)
    return checker.builder_.get()
