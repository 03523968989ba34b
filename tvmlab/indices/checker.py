"""The graph rewriter that inserts checks before the operators that index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.relax import op

from ..errors import CompileError, ModelError, TvmlabError
from ..ir.graph import is_call
from .loops import (
    CONDITIONS,
    UNCHECKED,
    advice,
    checked_indices,
    checked_sizes,
    on_cpu,
    opaque,
    plain,
    same,
    shape_of,
    static,
    symbolic,
)
from .operators import RULES

__all__ = ["Checker", "not_below_zero"]

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
#: Upstream's importers write this number, or a larger one, for the end of an axis.
_FAR = 2**31 - 1
#: Operators that read memory at computed positions, without a check for them.
_REFUSED = {
    f"relax.{name}"
    for name in (
        "grad.take_backward", "grad.nll_loss_backward", "multinomial_from_uniform", "nn.nll_loss",
        "reverse_sequence", "vision.roi_align", "vision.roi_pool", "vision.non_max_suppression",
    )
}  # fmt: skip


def not_below_zero(indices: relax.Expr, emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
    """Replace negative indices with the largest integer, which `CheckIndices` then refuses."""
    kind = str(indices.ty.dtype)
    if kind.startswith("u"):
        return indices
    if isinstance(indices, ir.GenericConst) and not np.any(indices.value.numpy() < 0):
        return indices
    below = emit(op.less(indices, relax.const(0, kind)))
    return emit(op.where(below, relax.const(np.iinfo(kind).max, kind), indices))


@relax.expr_functor.mutator
class Checker(relax.PyExprMutator):  # type: ignore[misc]
    """Rewriter of calls in `RULES` and `CONDITIONS`; without `check`, only of constant indices."""

    def __init__(self, mod: ir.IRModule, check: bool, from_end: bool) -> None:
        super().__init__(mod)
        self.check, self.from_end = check, from_end
        self.cpu = on_cpu()
        self.analyzer = tvm.sym.Analyzer()

    def begin(self, function: relax.Function) -> bool:
        """Collect a function's known sizes; return whether the function must be rewritten."""
        self.analyzer = tvm.sym.Analyzer()
        types, concerned = [parameter.ty for parameter in function.params], False

        def look(expr: Any) -> None:
            nonlocal concerned
            if isinstance(expr, relax.Call):
                concerned |= self.concerns(expr)
            elif isinstance(expr, relax.SeqExpr):
                bindings = (one for block in expr.blocks for one in block.bindings)
                types.extend(one.ty for one in bindings if isinstance(one, relax.MatchCast))

        relax.analysis.post_order_visit(function, look)
        zero, most = (tirx.const(number, "int64") for number in (0, 1 << 62))
        tensors = [ty for ty in types if isinstance(ty, (relax.TensorType, relax.TupleType))]
        for size in {size for ty in tensors for size in relax.analysis.tir_vars_in_type(ty)}:
            self.analyzer.bind(size, ir.Range.from_min_extent(zero, most))
        return concerned

    def concerns(self, call: relax.Call) -> bool:
        """Return whether a call needs a check or has indices to normalize."""
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        if name == "relax.call_tir" and not self.cpu:
            attrs = self.builder_.get()[call.args[0]].attrs
            if attrs and "tvmlab.cpu" in attrs:
                what = "the model computes sizes, which tvmlab does on a CPU only"
                raise self.refused(what, "compile(target=...)", "compile for a CPU")
        if name in RULES or name in UNCHECKED:
            return True
        return name in _REFUSED or (name in CONDITIONS and symbolic(call))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        assumed = call
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if not isinstance(call, relax.Call) or not isinstance(call.op, ir.Op):
            return call
        name = call.op.name
        pairs = zip(assumed.args, call.args, strict=True)
        if any(map(_far, call.args)) or (
            name.startswith("relax.call_") and any(not same(a.ty, b.ty) for a, b in pairs)
        ):
            raise self.refused("the importer assumed the size of a slice", name[6:], _TO_BOUNDS)
        if self.check and name in _REFUSED:
            what = "this operator's kernel reads at positions that tvmlab cannot check"
            raise self.refused(what, name[6:], "replace it by other operators, such as take")
        if self.check and name in CONDITIONS and self.concerns(call):
            call = self.sliced(call) if is_call(call, "relax.strided_slice") else self.fitted(call)
        return RULES[name](self, call) if name in RULES else call

    def visit_shape_expr_(self, shape: relax.ShapeExpr) -> relax.Expr:
        """Rewrite one shape, called by TVM's visitor."""
        if not self.check:
            return shape
        values = [self.divided(value) for value in shape.values]
        if all(old.same_as(new) for old, new in zip(shape.values, values, strict=True)):
            return shape
        return relax.ShapeExpr(values)

    def divided(self, size: Any) -> Any:
        """Return a size whose divisors are not 0, because a division by 0 ends the process."""
        if not isinstance(size, tirx.expr.BinaryOpExpr):
            return size
        one, other = self.divided(size.a), self.divided(size.b)
        signs = (other > 0, other < 0)
        if isinstance(size, _DIVISIONS) and not any(map(self.analyzer.can_prove, signs)):
            other = tirx.max(other, tirx.const(1, "int64"))
        unchanged = one.same_as(size.a) and other.same_as(size.b)
        return size if unchanged else type(size)(one, other)

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a variable."""
        return self.builder_.emit(expr)

    def emit_te(self, make: Callable[..., Any], *args: Any, name: str) -> relax.Var:
        """Bind the result of a function written in TE."""
        return self.emit(self.builder_.call_te(make, *args, primfunc_name_hint=name))

    def value(self, expr: Any) -> Any:
        """Return the value that a variable is bound to."""
        while isinstance(expr, relax.Var) and (bound := self.lookup_binding(expr)) is not None:
            expr = bound
        return expr

    def refused(self, what: str, where: str, fix: str) -> TvmlabError:
        """Return the error for a problem that is known at compile time."""
        return (CompileError if self.check else ModelError)(what, where=where, fix=fix)

    # Sizes

    def fitted(self, call: relax.Call) -> relax.Call:
        """Check that the sizes fit an operator, and make its first tensor depend on the check."""
        given = self.value(call.args[0])
        several = isinstance(given, relax.Tuple)
        tensors = list(given.fields) if several else [call.args[0]]
        tensors += [one for one in call.args[1:] if isinstance(one.ty, relax.TensorType)]
        shapes: list[Any] = [shape_of(one.ty) for one in tensors]
        if None in shapes:
            return call
        made = shape_of(call.ty)
        where = f"{call.op.name.removeprefix('relax.')} of {' and '.join(map(plain, shapes))}"
        where += "" if made is None else f" to {plain(made)}"
        flag = self.checked(CONDITIONS[call.op.name](call, shapes, made), where)
        if flag is None:
            return call
        first, *others = tensors
        if not shapes[0]:  # a copy of a scalar could not depend on the check
            first = self.emit(op.reshape(first, [1]))
        first = self.copied(first, flag, first.ty.shape)
        rest = list(call.args[1:])
        return relax.Call(
            call.op, [relax.Tuple([first, *others]) if several else first, *rest], call.attrs
        )

    def sliced(self, call: relax.Call) -> relax.Expr:
        """Check that a slice has the size that its importer assumed.

        Importers expect the slice to lie inside its tensor. Here its bounds are clamped as ONNX
        and PyTorch do, and the clamped slice must have the assumed size.
        """
        data, *given = call.args
        sizes, assumed = shape_of(data.ty), shape_of(call.ty)
        if sizes is None or assumed is None or not all(isinstance(x, relax.Tuple) for x in given):
            return call
        axes, begins, ends, *steps = (list(one.fields) for one in given)
        if not all((static(step) or 0) > 0 for step in (steps[0] if steps else ())):
            what = "a slice of a symbolic size has a step that is symbolic or not above zero"
            raise self.refused(what, f"strided_slice of {plain(sizes)}", "slice with a step of 1")
        made = op.strided_slice(data, axes, begins, ends, *steps, assume_inbound=False)
        made = self.builder_.normalize(made)
        found = shape_of(made.ty) or assumed
        conditions = [size >= 0 for size in found if static(size) is None]
        if call.attrs.assume_inbound:
            for axis, end in zip(axes, ends, strict=True):
                if (static(end) or 0) >= _FAR:  # the importer subtracted the begin from `_FAR`
                    assumed[int(axis)] = found[int(axis)]
            conditions += [tirx.EQ(*pair) for pair in zip(found, assumed, strict=True)]
        flag = self.checked(conditions, f"a slice of {plain(sizes)} to {plain(assumed)}")
        if flag is None and not call.attrs.assume_inbound:
            return made
        starts: list[Any] = [tirx.const(0, "int64")] * len(sizes)
        by = [1] * len(sizes)
        for i, axis in enumerate(map(int, axes)):
            starts[axis] = self.start(begins[i], sizes[axis])
            by[axis] = int(steps[0][i]) if steps else 1
        if flag is None and all(
            starts[int(axis)].same_as(begin) for axis, begin in zip(axes, begins, strict=True)
        ):
            return call

        # The slice is taken as assumed, whose sizes are simpler than those of a clamped slice.
        def taken(values: te.Tensor, starts: Any, sizes: Any, *flags: te.Tensor) -> te.Tensor:
            def place(*at: Any) -> Any:
                *first, last = (s + i * n for s, i, n in zip(starts, at, by, strict=True))
                return values(*first, last + flags[0](0) if flags else last)

            return te.compute(sizes, place)

        flags = [] if flag is None else [flag]
        return self.emit_te(taken, data, starts, list(assumed), *flags, name="sliced")

    def start(self, begin: Any, size: Any) -> Any:
        """Return where a slice of an axis begins, clamped unless a clamp changes nothing."""
        if not self.analyzer.can_prove(begin >= 0):
            counted = begin + size
            if not self.analyzer.can_prove(begin < 0):
                counted = tirx.Select(begin < 0, counted, begin)
            begin = tirx.max(counted, tirx.const(0, "int64"))
        return begin if self.analyzer.can_prove(begin <= size) else tirx.min(begin, size)

    def checked(self, conditions: Sequence[Any], where: str) -> relax.Expr | None:
        """Emit an assertion of conditions; return its zero, or None if all are known to hold."""
        unknown = [one for one in conditions if not self.analyzer.can_prove(one)]
        if any(self.analyzer.can_prove(tirx.Not(one)) for one in unknown):
            raise self.refused("shapes do not fit", where, "correct the operands' shapes")
        if not unknown or not self.cpu:
            return None
        return opaque(self.builder_, checked_sizes, unknown, where, name="check_sizes")

    def copied(self, value: relax.Expr, flag: relax.Expr, sizes: Sequence[Any]) -> relax.Expr:
        """Return a copy of a tensor with the given sizes that depends on a check."""

        def copy(values: te.Tensor, flag: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
            return te.compute(sizes, lambda *at: values(*at[:-1], at[-1] + flag(0)))

        return self.emit_te(copy, value, flag, list(sizes), name="sized")

    # Indices

    def within(
        self,
        indices: relax.Expr,
        extents: Sequence[Any],
        where: str,
        data: relax.Expr | None = None,
        fix: str = "",
    ) -> relax.Expr:
        """Return non-negative indices, and emit a check that each lies inside its axis.

        With several extents, the last axis of the indices selects the extent. `data` is the tensor
        that the indices select from, and `fix` the advice in the error for indices outside.
        """
        if not self.check and self.from_end:
            indices = self.uncounted(indices, data)
        below = self.chosen(indices)
        is_guarded = below is not None and _number(below[0]) == _most(indices)
        plain = below[1] if below is not None and is_guarded else indices
        signed = not str(indices.ty.dtype).startswith("u")
        from_end = self.from_end and signed and not is_guarded
        sizes = [static(extent) for extent in extents]
        fix = fix or advice(extents, from_end)
        if isinstance(plain, ir.GenericConst) and None not in sizes:
            values, high = plain.value.numpy(), np.array(sizes if len(sizes) > 1 else sizes[0])
            outside = (values >= high) | (values < (-high if from_end else 0))
            if np.any(outside):
                what = f"the index {values[outside].flat[0]} is out of range"
                raise self.refused(what, where, fix)
            if not from_end or not np.any(values < 0):
                return plain
            return relax.const(np.where(values < 0, values + high, values), "int64")
        if not self.check:
            return indices if from_end or is_guarded else not_below_zero(indices, self.emit)
        if not self.cpu:
            return self.clipped(plain, extents, from_end)

        def check(values: te.Tensor, extents: Sequence[Any]) -> te.Tensor:
            return checked_indices(values, extents, where, fix, from_end)

        return opaque(self.builder_, check, plain, list(extents), name="check_indices")

    def clipped(self, indices: relax.Expr, extents: Sequence[Any], from_end: bool) -> relax.Expr:
        """Return indices clipped to their axes, computed by Relax's operators."""
        sizes = self.emit(op.shape_to_tensor(relax.ShapeExpr(list(extents))))
        if len(extents) == 1:
            sizes = self.emit(op.reshape(sizes, []))
        zero, one = (relax.const(number, "int64") for number in (0, 1))
        made = self.emit(op.astype(indices, "int64"))
        if from_end:
            made = op.where(op.less(made, zero), op.add(made, sizes), made)
        return self.emit(op.maximum(op.minimum(made, op.subtract(sizes, one)), zero))

    def uncounted(self, indices: relax.Expr, data: relax.Expr | None) -> relax.Expr:
        """Return i for ``where(i < 0, i + extent, i)``, which accepts twice the valid range.

        Upstream's ONNX importer wraps a model's indices in this `where`. A model's own is kept.
        """
        found = self.chosen(indices)
        moved: Any = self.value(found[0]) if found else None
        if found is None or not is_call(moved, "relax.add") or not same(found[1], moved.args[0]):
            return indices
        size = self.value(moved.args[1])
        while is_call(size, *_OF_SIZES):
            size = self.value(size.args[0])
        known = data is not None and (same(size, self.value(data)) or same(size, data.ty.shape))
        return found[1] if known else indices

    def chosen(self, indices: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
        """Return x and i of ``where(i < 0, x, i)``, or None for another expression."""
        choice = self.value(indices)
        if not is_call(choice, "relax.where"):
            return None
        test, (other, first) = self.value(choice.args[0]), choice.args[1:]
        zero = is_call(test, "relax.less") and _number(test.args[1]) == 0
        return (other, first) if zero and same(first, test.args[0]) else None


_TO_BOUNDS = "slice with bounds that are inputs of the model, or export it with known sizes"
_OF_SIZES = [
    f"relax.{name}" for name in ("astype", "take", "strided_slice", "shape_to_tensor", "shape_of")
]


def _far(shape: relax.Expr) -> bool:
    """Return whether a shape has a size that an importer computed from the end of an axis."""
    numbers: list[Any] = []
    if isinstance(shape, relax.ShapeExpr):
        tvm_ffi.structural_walk(shape, (tirx.IntImm, numbers.append))
    return any(int(number) >= _FAR for number in numbers)


def _most(indices: relax.Expr) -> int:
    return int(np.iinfo(str(indices.ty.dtype)).max)


def _number(expr: Any) -> int | None:
    """Return the value of a constant of one element."""
    if not isinstance(expr, ir.GenericConst) or expr.value.numpy().size != 1:
        return None
    return int(expr.value.numpy().item())
