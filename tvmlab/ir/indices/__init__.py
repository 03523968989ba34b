"""Run-time checks of the indices of the operators in `tvmlab.ir.indices.operators`.

Upstream's kernels do not check indices, so an index that is negative or too large accesses memory
outside the tensor. `CheckIndices` puts a small function before each operator of the table. The
function counts negative indices from the end of the axis, as Python does, and raises
`tvmlab.errors.OutOfRangeError` where an index is outside. The check is an assertion in TIR, so it
also holds in a saved executable and in C++.

`CheckIndices` also clamps slices whose bounds are symbolic sizes, and checks the sizes that an
importer assumed, see `tvmlab.ir.indices.sizes`.

A kernel on a GPU cannot raise an error. For such targets indices are clipped to the axis instead,
and what follows stays unchecked: slices with bounds in tensors or negative steps, and sizes that
only run time tells, of reshapes, concatenations, matrix products and convolutions.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax

from .operators import OPERATORS
from .rewriter import Rewriter, not_below_zero
from .sizes import SIZED, Sizes, sized

__all__ = ["CheckIndices", "NormalizeIndices", "not_below_zero"]


@tvm.transform.module_pass(opt_level=0)
class NormalizeIndices:
    """Make constant indices below zero positive, as upstream's loops need them.

    Upstream's ONNX importer adds the size of the axis to indices below zero, by operators that let
    twice the range through. They are removed, and `CheckIndices` counts from the end instead.

    Parameters
    ----------
    from_end : bool
        Whether indices below zero count from the end. Otherwise they are errors.

    Raises
    ------
    ModelError
        A constant index is outside of its axis.
    """

    def __init__(self, from_end: bool = True) -> None:
        self.from_end = from_end

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=False, from_end=self.from_end)


@tvm.transform.module_pass(opt_level=0)
class CheckIndices:
    """Check every index of a module at run time, and normalize the constant ones now.

    Slices with symbolic bounds are clamped to their axes, and sizes that an importer assumed are
    checked. For a target that is no CPU, indices at run time are clipped, and nothing is raised.

    Raises
    ------
    CompileError
        A constant index is outside of its axis, or the shapes of operands cannot fit.
    """

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=True)


def _rewritten(mod: ir.IRModule, *, check: bool, from_end: bool = True) -> ir.IRModule:
    rewriter = Rewriter(mod, {**OPERATORS, **SIZED}, check=check, from_end=from_end)
    called = _called(mod)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and _indexes(function, check):
            rewriter.sizes, rewriter.strict = Sizes(function), name.name_hint in called
            made = rewriter.visit_expr(function)
            # A slice can have another size than the one that the importer assumed.
            made = relax.Function(made.params, made.body, None, made.is_pure, made.attrs)
            rewriter.builder_.update_func(name, made)
    return rewriter.builder_.get()


def _called(mod: ir.IRModule) -> set[str]:
    """Return the names of the functions that others call, or that hold others."""
    found: set[str] = set()
    for name, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        within: list[Any] = []
        relax.analysis.post_order_visit(function, within.append)
        found.update(one.name_hint for one in within if isinstance(one, ir.GlobalVar))
        if sum(isinstance(one, relax.Function) for one in within) > 1:
            found.add(name.name_hint)
    return found


def _indexes(function: relax.Function, check: bool) -> bool:
    found: list[bool] = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            found.append(expr.op.name in OPERATORS or (check and sized(expr)))

    relax.analysis.post_order_visit(function, look)
    return any(found)
