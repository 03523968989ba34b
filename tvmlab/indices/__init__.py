"""Run-time checks of indices and of symbolic sizes.

Upstream's kernels do not check indices, so an index that is negative or too large accesses memory
outside the tensor. `CheckIndices` inserts a small function before each operator of
`tvmlab.indices.operators`. The function counts negative indices from the end of the axis, as
Python does, and raises `tvmlab.errors.OutOfRangeError` for an index outside the axis. The check is
an assertion in TIR, so it also works in a saved executable and in C++.

Upstream's importers assume that symbolic sizes fit: that a slice with a symbolic bound lies inside
its tensor, or that a tensor can be reshaped. `CheckIndices` turns these assumptions into
assertions, see `tvmlab.indices.loops`.

A GPU kernel cannot raise an error. On a GPU, indices are clipped and sizes are not checked.

`tvmlab.indices.formulas` first replaces integer tensors that depend on sizes alone, such as masks.
They need no checks.
"""

from __future__ import annotations

import tvm
from tvm import ir, relax

from .checker import Checker, not_below_zero

__all__ = ["CheckIndices", "NormalizeIndices", "not_below_zero"]


@tvm.transform.module_pass(opt_level=0)
class NormalizeIndices:
    """Make negative constant indices positive, because upstream's loops require this.

    Upstream's ONNX importer adds the size of the axis to negative indices, which accepts twice the
    valid range. This pass removes the addition, so that `CheckIndices` counts from the end.

    With `from_end`, negative indices count from the end. Otherwise they are errors. A constant
    index outside its axis raises `ModelError`.
    """

    def __init__(self, from_end: bool = True) -> None:
        self.from_end = from_end

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=False, from_end=self.from_end)


@tvm.transform.module_pass(opt_level=0)
class CheckIndices:
    """Normalize constant indices at compile time, and check every other index at run time.

    Raises `CompileError` if a constant index is outside its axis, if the operands' shapes cannot
    fit, or if an operator reads memory at indices that cannot be checked.
    """

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=True)


def _rewritten(mod: ir.IRModule, *, check: bool, from_end: bool = True) -> ir.IRModule:
    checker = Checker(mod, check, from_end)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and checker.begin(function):
            made = checker.visit_expr(function)
            # The size of a slice can differ from the size that the importer assumed.
            made = relax.Function(made.params, made.body, None, made.is_pure, made.attrs)
            checker.builder_.update_func(name, made)
    return checker.builder_.get()
