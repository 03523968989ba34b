"""The rewriter of a graph that puts checks before the operators that index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import CompileError, ModelError, TvmlabError
from ..graph import is_call
from .loops import ANALYZER, advice, checked_indices, clipped_indices, same, size_text, static
from .sizes import Sizes, divided, fitted

__all__ = ["Fits", "Rewriter", "not_below_zero", "on_cpu"]

#: Sizes of which the first must not be larger than the second.
Fits = Sequence[tuple[Any, Any]]


def not_below_zero(indices: relax.Expr, emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
    """Replace negative indices with the largest integer.

    The range check then rejects them, as the source framework does.

    Parameters
    ----------
    indices : tvm.relax.Expr
        A tensor of integers.
    emit : callable
        Binds an expression to a variable, such as ``BlockBuilder.emit``.

    Returns
    -------
    tvm.relax.Expr
        The indices, which `CheckIndices` refuses where they were below zero.
    """
    kind = str(indices.ty.dtype)
    if kind.startswith("u"):
        return indices
    if isinstance(indices, ir.GenericConst) and not np.any(indices.value.numpy() < 0):
        return indices
    below = emit(op.less(indices, relax.const(0, kind)))
    return emit(op.where(below, relax.const(np.iinfo(kind).max, kind), indices))


def on_cpu() -> bool:
    """Return whether the current target is a CPU, whose kernels can raise errors."""
    target = tvm.target.Target.current(allow_none=True)
    return target is None or "cpu" in target.keys


@relax.expr_functor.mutator
class Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Rewrites the operators of a table, each by its function of the rewriter and the call.

    Attributes
    ----------
    sizes : Sizes
        What is known about the symbolic sizes of the function.
    strict : bool
        Whether every tensor must have the sizes that the importer assumed.
    """

    sizes: Sizes
    strict: bool

    def __init__(
        self,
        mod: ir.IRModule,
        operators: Mapping[str, Callable[[Rewriter, relax.Call], relax.Expr]],
        *,
        check: bool,
        from_end: bool,
    ) -> None:
        super().__init__(mod)
        self.operators, self.check, self.from_end = operators, check, from_end
        self.cpu = on_cpu()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        call = fitted(self, call)
        rewrite = self.operators.get(getattr(call.op, "name", ""))
        return call if rewrite is None else rewrite(self, call)

    def visit_shape_expr_(self, shape: relax.ShapeExpr) -> relax.Expr:
        """Rewrite one shape, called by TVM's visitor."""
        return divided(self, shape) if self.check else shape

    def visit_if_(self, choice: relax.If) -> relax.Expr:
        """Rewrite branches, which must return equal sizes; called by TVM's visitor."""
        outer, self.strict = self.strict, True
        made = self.visit_expr_post_order(choice)
        self.strict = outer
        return made

    def value(self, expr: Any) -> Any:
        """See what a variable is bound to."""
        while isinstance(expr, relax.Var) and (bound := self.lookup_binding(expr)) is not None:
            expr = bound
        return expr

    def within(
        self,
        indices: relax.Expr,
        extents: Sequence[Any],
        where: str,
        fits: Fits = (),
        mode: str = "",
        *,
        from_end: bool = True,
        spared: int | None = None,
    ) -> relax.Expr:
        """Return non-negative indices, and emit a check that each lies inside its axis.

        With several extents, the last axis of the indices runs over them. With `mode` ("clip" or
        "wrap", those of ``take``), only an empty axis can fail the check. Without `from_end`,
        indices below zero fail it. Indices that are `spared` pass as they are.
        """
        if not self.check and self.from_end:
            indices = self.unmoved(indices, extents)
        plain = self.guarded(indices)
        signed = not str(indices.ty.dtype).startswith("u")
        from_end = from_end and self.from_end and signed and plain is indices
        fits = [pair for pair in fits if not self.fit(*pair, where)]
        sizes = [static(extent) for extent in extents]
        if isinstance(plain, ir.GenericConst) and None not in sizes and not fits and not mode:
            return self.constant(plain, sizes, where, from_end, spared)
        if not self.check or plain.ty.shape is None:
            guarded = from_end or plain is not indices
            return indices if guarded else not_below_zero(indices, self.builder_.emit)
        make = checked_indices if on_cpu() else clipped_indices
        made = self.builder_.call_te(
            lambda values, extents, fits: make(
                values, extents, fits, where, mode, from_end, spared
            ),
            plain,
            list(extents),
            [size for pair in fits for size in pair],
            primfunc_name_hint="check_indices",
        )
        return self.builder_.emit(made)

    def constant(
        self,
        indices: ir.GenericConst,
        sizes: Sequence[Any],
        where: str,
        from_end: bool,
        spared: int | None,
    ) -> relax.Expr:
        """Check constant indices, and count those below zero from the end."""
        values = indices.value.numpy()
        high = np.array(sizes if len(sizes) > 1 else sizes[0])
        outside = (values >= high) | (values < (-high if from_end else 0))
        outside &= True if spared is None else values != spared
        if np.any(outside):
            found = values[outside].flat[0]
            raise self.refused(f"the index {found} is out of range", where, advice(sizes, from_end))
        if not from_end or not np.any(values < 0):
            return indices
        return relax.const(np.where(values < 0, values + high, values), "int64")

    def fit(self, small: Any, large: Any, where: str) -> bool:
        """Return whether sizes are known to fit; refuse those that cannot."""
        small, large = (tirx.const(0, "int64") + size for size in (small, large))
        if ANALYZER.can_prove(small > large):
            said = f"shapes do not fit: {size_text(small)} elements for {size_text(large)}"
            raise self.refused(said, where, "correct the operands' shapes")
        return bool(ANALYZER.can_prove(small <= large))

    def refused(self, what: str, where: str, fix: str) -> TvmlabError:
        """Return the error for an index that is invalid at compile time."""
        return (CompileError if self.check else ModelError)(what, where=where, fix=fix)

    def guarded(self, indices: relax.Expr) -> relax.Expr:
        """See through `not_below_zero`."""
        found = self.chosen(indices)
        if found is None or _number(found[0]) != np.iinfo(str(indices.ty.dtype)).max:
            return indices
        return found[1]

    def unmoved(self, indices: relax.Expr, extents: Sequence[Any]) -> relax.Expr:
        """See through ``where(i < 0, i + extent, i)``, which lets through twice the range.

        Upstream's ONNX importer writes it around the indices of a model. A model's own is inside.
        """
        found = self.chosen(indices)
        if found is None:
            return indices
        moved, first = self.value(found[0]), found[1]
        if not is_call(moved, "relax.add") or not same(first, moved.args[0]):
            return indices
        return first if self.are(moved.args[1], extents) else indices

    def chosen(self, indices: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
        """Return x and i of ``where(i < 0, x, i)``."""
        choice = self.value(indices)
        if not is_call(choice, "relax.where"):
            return None
        test = self.value(choice.args[0])
        other, first = choice.args[1:]
        below = (
            is_call(test, "relax.less") and same(first, test.args[0]) and _number(test.args[1]) == 0
        )
        return (other, first) if below else None

    def are(self, value: relax.Expr, extents: Sequence[Any]) -> bool:
        """Return whether a value is known to hold the extents."""
        value = self.value(value)
        if is_call(value, "relax.astype"):
            value = self.value(value.args[0])
        if not is_call(value, "relax.take", "relax.strided_slice"):
            return False
        dims = self.dims(value.args[0])
        if dims is None:
            return False
        if is_call(value, "relax.take"):
            axis = _number(value.args[1])
            found = [] if axis is None else [dims[axis]]
        else:
            begin, end = (value.args[k] for k in (2, 3))
            found = dims[int(begin[0]) : int(end[0])]
        return len(found) == len(extents) and all(
            ANALYZER.can_prove_equal(*pair) for pair in zip(found, extents, strict=True)
        )

    def dims(self, value: relax.Expr) -> list[Any] | None:
        """Return the sizes that a tensor made by ``shape_to_tensor`` holds."""
        value = self.value(value)
        if not is_call(value, "relax.shape_to_tensor"):
            return None
        shape = self.value(value.args[0])
        if is_call(shape, "relax.shape_of"):
            shape = shape.args[0].ty.shape
        return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def _number(expr: Any) -> int | None:
    """Return the value of a constant of one element."""
    if not isinstance(expr, ir.GenericConst) or expr.value.numpy().size != 1:
        return None
    return int(expr.value.numpy().item())
