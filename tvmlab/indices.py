"""Indices that are known at run time only: checked before anything is read or written by them.

Upstream's loops use an index as it comes, so that one outside of its axis, or below zero, reads or
writes other memory. `CheckIndices` puts a small function before each such operator. It counts
indices below zero from the end of the axis, like Python, and ends the call with
`tvmlab.errors.OutOfRangeError` where an index is outside. The check is an assertion of TIR: it
holds in a saved executable and in C++, too.

No kernel on a GPU can raise an error. For such targets indices are clipped to the axis instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .errors import CompileError, ModelError, TvmlabError

__all__ = ["CheckIndices", "NormalizeIndices", "not_below_zero"]

_ANALYZER = tvm.sym.Analyzer()
#: Sizes of which the first must not be larger than the second.
Fits = Sequence[tuple[Any, Any]]


@tvm.transform.module_pass(opt_level=0)
class NormalizeIndices:
    """Make constant indices below zero positive, as upstream's loops need them.

    Upstream's importers write operators around indices, which are removed: the ONNX importer adds
    the size of the axis to indices below zero, and the TensorFlow Lite importer casts to int32.

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

    For a target that is no CPU, indices at run time are clipped, and nothing is raised.

    Raises
    ------
    CompileError
        A constant index is outside of its axis, or the shapes of operands cannot fit.
    """

    def transform_module(self, mod: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        return _rewritten(mod, check=True)


def not_below_zero(indices: relax.Expr, emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
    """Make indices below zero as large as can be, where the source refuses them, too.

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


def _rewritten(mod: ir.IRModule, *, check: bool, from_end: bool = True) -> ir.IRModule:
    rewriter = _Rewriter(mod, check, from_end)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and _indexes(function):
            rewriter.builder_.update_func(name, rewriter.visit_expr(function))
    return rewriter.builder_.get()


def _indexes(function: relax.Function) -> bool:
    found: list[bool] = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
            found.append(expr.op.name in _OPERATORS)

    relax.analysis.post_order_visit(function, look)
    return any(found)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Rewrites the operators of `_OPERATORS`."""

    def __init__(self, mod: ir.IRModule, check: bool, from_end: bool) -> None:
        super().__init__(mod)
        self.check, self.from_end = check, from_end

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Rewrite one call, called by TVM's visitor."""
        call = self.visit_expr_post_order(call)
        rewrite = _OPERATORS.get(getattr(call.op, "name", ""))
        return call if rewrite is None else rewrite(self, call)

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
    ) -> relax.Expr:
        """Give indices that are not below zero, and make sure that they are in their axes.

        With several extents, the last axis of the indices runs over them. The modes are those of
        ``take`` that leave no index outside, save of an axis without elements.
        """
        indices = self.unmoved(self.uncast(indices), extents)
        fits = [pair for pair in fits if not self.fit(*pair, where)]
        sizes = [_static(extent) for extent in extents]
        if isinstance(indices, ir.GenericConst) and None not in sizes and not fits and not mode:
            return self.constant(indices, sizes, where)
        if not self.from_end:
            indices = not_below_zero(indices, self.builder_.emit)
        if not self.check or indices.ty.shape is None:
            return indices
        make = _checked if _on_cpu() else _clipped
        made = self.builder_.call_te(
            lambda values, extents, fits: make(values, extents, fits, where, mode),
            indices,
            list(extents),
            [size for pair in fits for size in pair],
            primfunc_name_hint="check_indices",
        )
        return self.builder_.emit(made)

    def constant(self, indices: ir.GenericConst, sizes: Sequence[Any], where: str) -> relax.Expr:
        """Count constant indices below zero from the end."""
        values = indices.value.numpy()
        high = np.array(sizes if len(sizes) > 1 else sizes[0])
        low = -high if self.from_end and values.dtype.kind == "i" else 0
        outside = (values >= high) | (values < low)
        if np.any(outside):
            raise self.refused(
                f"the index {values[outside].flat[0]} is out of range", where, _advice(sizes)
            )
        if not np.any(values < 0):
            return indices
        return relax.const(np.where(values < 0, values + high, values), "int64")

    def fit(self, small: Any, large: Any, where: str) -> bool:
        """Say whether sizes are known to fit; refuse those that cannot."""
        small, large = (tirx.const(0, "int64") + size for size in (small, large))
        if _ANALYZER.can_prove(small > large):
            said = f"shapes do not fit: {_said(small)} elements for {_said(large)}"
            raise self.refused(said, where, "correct the operands' shapes")
        return bool(_ANALYZER.can_prove(small <= large))

    def refused(self, what: str, where: str, fix: str) -> TvmlabError:
        """Make the error of what never can be right."""
        return (CompileError if self.check else ModelError)(what, where=where, fix=fix)

    def uncast(self, indices: relax.Expr) -> relax.Expr:
        """See through a cast of integers to fewer bits, which makes other indices of large ones."""
        cast = self.value(indices)
        if not _calls(cast, "astype"):
            return indices
        before, after = (tvm.DataType(str(one.ty.dtype)) for one in (cast.args[0], cast))
        integers = str(before).startswith("int") and str(after).startswith("int")
        return cast.args[0] if integers and before.bits > after.bits else indices

    def unmoved(self, indices: relax.Expr, extents: Sequence[Any]) -> relax.Expr:
        """See through ``where(i < 0, i + extent, i)``, which lets through twice the range."""
        choice = self.value(indices)
        if not _calls(choice, "where"):
            return indices
        test, moved = self.value(choice.args[0]), self.value(choice.args[1])
        first = choice.args[2]
        if (
            _calls(test, "less")
            and _calls(moved, "add")
            and all(_same(first, other) for other in (test.args[0], moved.args[0]))
            and _number(test.args[1]) == 0
            and self.are(moved.args[1], extents)
        ):
            return first
        return indices

    def are(self, value: relax.Expr, extents: Sequence[Any]) -> bool:
        """Say whether a value is known to hold the extents, as upstream's importer reads them."""
        value = self.value(value)
        if _calls(value, "astype"):
            value = self.value(value.args[0])
        if isinstance(value, ir.GenericConst):
            found = value.value.numpy().reshape(-1).tolist()
        elif _calls(value, "take") or _calls(value, "strided_slice"):
            dims = self.dims(value.args[0])
            if dims is None:
                return False
            if _calls(value, "take"):
                axis = _number(value.args[1])
                found = [] if axis is None else [dims[axis]]
            else:
                begin, end = (value.args[k] for k in (2, 3))
                found = dims[int(begin[0]) : int(end[0])]
        else:
            return False
        return len(found) == len(extents) and all(
            _ANALYZER.can_prove_equal(*pair) for pair in zip(found, extents, strict=True)
        )

    def dims(self, value: relax.Expr) -> list[Any] | None:
        """Give the sizes that a tensor made by ``shape_to_tensor`` holds."""
        value = self.value(value)
        if not _calls(value, "shape_to_tensor"):
            return None
        shape = self.value(value.args[0])
        if _calls(shape, "shape_of"):
            shape = shape.args[0].ty.shape
        return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


# What becomes of indices


def _checked(
    indices: te.Tensor, extents: Sequence[Any], fits: Sequence[Any], where: str, mode: str
) -> te.Tensor:
    """Copy indices as int64, those below zero counted from the end; assert that all are inside."""
    loops = indices.shape if len(extents) == 1 else indices.shape[:-1]

    def body(inputs: Any, outputs: Any) -> Any:
        given, made = inputs[0], outputs[0]
        with IRBuilder() as builder:
            # A loop of one round: several statements need a block.
            with T.serial(0, 1):
                for small, large in zip(fits[::2], fits[1::2], strict=True):
                    with T.Assert(small <= large, *_error("shapes do not fit", where)):
                        pass
                # One assertion after the loop leaves the loop to vector instructions.
                outside = T.alloc_buffer((1,), "int32", scope="local")
                T.buffer_store(outside, tirx.const(0, "int32"), [0])
                with T.grid(*(loops or [1])) as at:
                    at = [at] if isinstance(at, tirx.Var) else list(at)
                    for j, extent in enumerate(extents):
                        place = [*at, j] if len(extents) > 1 else at[: len(loops)]
                        size = tirx.Cast("int64", extent)
                        value = _moved(tirx.BufferLoad(given, place), size, mode)
                        beyond = tirx.Cast("int32", tirx.any(value < 0, value >= size))
                        T.buffer_store(outside, outside[0] | beyond, [0])
                        T.buffer_store(made, value, place)
                inside = outside[0] == tirx.const(0, "int32")
                with T.Assert(inside, *_error("an index is out of range", where, extents)):
                    pass
            return builder.get()

    out = tirx.decl_buffer(indices.shape, "int64", "checked", layout=None)
    return te.extern([indices.shape], [indices], body, "check_indices", "int64", out_buffers=[out])


def _clipped(
    indices: te.Tensor, extents: Sequence[Any], fits: Sequence[Any], where: str, mode: str
) -> te.Tensor:
    """Copy indices as int64, those below zero counted from the end, clipped to their axes."""

    def clip(*at: Any) -> Any:
        size = tirx.Cast("int64", extents[-1])
        for j, extent in enumerate(extents[:-1]):
            size = tirx.Select(at[-1] == j, tirx.Cast("int64", extent), size)
        value = _moved(indices(*at), size, mode)
        return tirx.max(tirx.min(value, size - 1), tirx.const(0, "int64"))

    return te.compute(indices.shape, clip, name="clip_indices")


def _moved(index: Any, size: Any, mode: str) -> Any:
    """Give an index as int64; below zero, it counts from the end."""
    value = tirx.Cast("int64", index)
    if mode == "clip":
        return tirx.max(tirx.min(value, size - 1), tirx.const(0, "int64"))
    if mode == "wrap":
        return tirx.floormod(value, tirx.max(size, tirx.const(1, "int64")))
    if str(index.ty.dtype).startswith("u"):  # as int64, a large one of 64 bits is below zero
        return value
    return tirx.if_then_else(value < 0, value + size, value)


def _error(what: str, where: str, extents: Sequence[Any] = ()) -> tuple[list[str], str]:
    fix = _advice(extents) if extents else "correct the operands' shapes"
    return [str(CompileError(what, where=where, fix=fix))], "tvmlab.OutOfRangeError"


def _advice(extents: Sequence[Any]) -> str:
    names = [(_static(extent), _said(extent)) for extent in extents]
    ranges = [f"-{name} to {name + ' - 1' if n is None else n - 1}" for n, name in names]
    return f"give indices from {' and from '.join(dict.fromkeys(ranges))}"


def _static(size: Any) -> int | None:
    return int(size) if isinstance(size, (int, tirx.IntImm)) else None


def _plain(sizes: Sequence[Any]) -> str:
    return f"[{', '.join(map(_said, sizes))}]"


def _said(size: Any) -> str:
    return str(size if _static(size) is None else _static(size))


def _on_cpu() -> bool:
    target = tvm.target.Target.current(allow_none=True)
    return target is None or "cpu" in target.keys


def _calls(expr: Any, name: str) -> bool:
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == f"relax.{name}"


def _same(one: Any, other: Any) -> bool:
    return bool(one.same_as(other) or tvm_ffi.structural_equal(one, other))


def _number(expr: Any) -> int | None:
    """Give what a constant of one element holds."""
    if not isinstance(expr, ir.GenericConst) or expr.value.numpy().size != 1:
        return None
    return int(expr.value.numpy().item())


# Where each operator has its indices


def _dims(*values: relax.Expr) -> list[list[Any]] | None:
    """Give shapes; None where one is not known, so that no loop can be made of the operator."""
    shapes = [value.ty.shape for value in values]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    return [list(shape.values) for shape in shapes]


def _equal(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    pairs = list(zip(one, other, strict=True))
    return [*pairs, *((b, a) for a, b in pairs)]


def _take(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    (data, indices), mode = call.args, str(call.attrs.mode)
    shapes = _dims(data)
    if shapes is None or mode == "nan":
        return call
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    extent, where = shapes[0][axis], f"take, axis {axis} of {_plain(shapes[0])}"
    if mode in ("clip", "wrap"):
        if not rewriter.check or _ANALYZER.can_prove(extent >= 1):
            return call
    else:
        mode = ""
    if ir.is_prim_expr(indices):
        indices = _scalar(rewriter, indices)
    checked = rewriter.within(indices, [extent], where, mode=mode)
    # Every index is inside now. Upstream warns of the mode "fast".
    kept = str(call.attrs.mode) if not rewriter.check else "clip"
    return op.take(data, checked, call.attrs.axis, kept)


def _scalar(rewriter: _Rewriter, number: Any) -> relax.Expr:
    if isinstance(number, tirx.IntImm):
        return relax.const(int(number), "int64")
    tensor = rewriter.builder_.emit(op.shape_to_tensor(relax.ShapeExpr([number])))
    return rewriter.builder_.emit(op.reshape(tensor, []))


def _gather_elements(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, indices = call.args
    shapes = _dims(data, indices)
    if shapes is None:
        return call
    axis = int(call.attrs.axis) % len(shapes[0])
    fits = [(b, a) for k, (a, b) in enumerate(zip(*shapes, strict=True)) if k != axis]
    where = f"gather_elements, axis {axis} of {_plain(shapes[0])}"
    checked = rewriter.within(indices, [shapes[0][axis]], where, fits)
    return op.gather_elements(data, checked, axis)


def _gather_nd(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    (data, indices), batch = call.args, int(call.attrs.batch_dims)
    shapes = _dims(data, indices)
    if shapes is None:
        return call
    of, by = shapes
    extents = of[batch : batch + int(by[-1])]
    where = f"gather_nd of {_plain(of)}, {batch} axes of batches"
    checked = rewriter.within(indices, extents, where, _equal(by[:batch], of[:batch]))
    return op.gather_nd(data, checked, batch)


def _scatter_elements(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, indices, updates = call.args
    shapes = _dims(data, indices, updates)
    if shapes is None:
        return call
    of, by, new = shapes
    axis = int(call.attrs.axis) % len(of)
    fits = [(by[k], of[k]) for k in range(len(of)) if k != axis]
    # Upstream's loop over the other axes takes the places of those that are larger in the data.
    fits += [(of[k], by[k]) for k in range(1, len(of)) if k not in (axis, axis + 1)]
    where = f"scatter_elements, axis {axis} of {_plain(of)}"
    checked = rewriter.within(indices, [of[axis]], where, fits + _equal(by, new))
    return op.scatter_elements(data, checked, updates, axis, str(call.attrs.reduction))


def _scatter_nd(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, indices, updates = call.args
    shapes = _dims(data, indices, updates)
    if shapes is None:
        return call
    of, by, new = shapes
    many = int(by[-1])
    where = f"scatter_nd of {_plain(of)}"
    fits = _equal([*by[:-1], *of[many:]], new)
    checked = rewriter.within(indices, of[:many], where, fits)
    return op.scatter_nd(data, checked, updates, str(call.attrs.reduction))


def _index_tensor(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, found = call.args[0], _fields(rewriter, call)
    shapes = _dims(data, *found)
    if shapes is None:
        return call
    return op.index_tensor(data, _each(rewriter, found, shapes, "index_tensor"))


def _index_put(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    (data, _, values), found = call.args, _fields(rewriter, call)
    shapes = _dims(data, *found)
    if shapes is None or not rewriter.check:
        return call
    emit, whole = rewriter.builder_.emit, _broadcast(shapes[1:])
    # Upstream's loop reads one value for each index, and its threads add to one element at once.
    places = [
        emit(op.broadcast_to(indices, whole))
        for indices in _each(rewriter, found, shapes, "index_put")
    ]
    values = emit(op.broadcast_to(values, whole))
    reduction = "add" if call.attrs.accumulate else "update"
    return op.scatter_nd(data, emit(op.stack(places, -1)), values, reduction)


def _fields(rewriter: _Rewriter, call: relax.Call) -> list[relax.Expr]:
    """Give the tensors of indices of a call, one for each axis."""
    indices = call.args[1]
    if not isinstance(indices.ty, relax.TupleType):
        return [indices]
    written = rewriter.value(indices)
    if isinstance(written, relax.Tuple):
        return list(written.fields)
    many = range(len(indices.ty.fields))
    return [rewriter.builder_.emit(relax.TupleGetItem(indices, k)) for k in many]


def _each(
    rewriter: _Rewriter, found: Sequence[relax.Expr], shapes: Sequence[Any], name: str
) -> list[relax.Expr]:
    of, *by = shapes
    whole = _broadcast(by)
    checked = []
    for axis, (indices, shape) in enumerate(zip(found, by, strict=True)):
        pairs = zip(reversed(shape), reversed(whole), strict=False)
        fits = [pair for pair in pairs if _static(pair[0]) != 1]
        fits += [(b, a) for a, b in fits]
        where = f"{name}, axis {axis} of {_plain(of)}"
        checked.append(rewriter.within(indices, [of[axis]], where, fits))
    return checked


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    made: list[Any] = [1] * max(map(len, shapes))
    for shape in shapes:
        for k, size in enumerate(reversed(shape), 1):
            if _static(made[-k]) == 1:
                made[-k] = size
    return made


def _dynamic_strided_slice(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    """Slice as ONNX does; upstream's loop makes shapes below zero and divides by zero."""
    data, builder = call.args[0], rewriter.builder_
    shapes = _dims(data)
    if shapes is None or not rewriter.check or not _on_cpu():
        return call
    ndim, where = len(shapes[0]), f"dynamic_strided_slice of {_plain(shapes[0])}"
    places = builder.emit(
        builder.call_te(
            lambda sizes, *given: _slices(sizes, given, where),
            list(shapes[0]),
            *call.args[1:],
            primfunc_name_hint="slice_places",
        )
    )
    sizes = builder.emit(op.squeeze(builder.emit(op.strided_slice(places, [0], [2], [3])), [0]))
    shape = builder.emit(op.tensor_to_shape(sizes))
    new = [tirx.Var(f"size_{k}", "int64") for k in range(ndim)]
    builder.match_cast(shape, relax.ShapeType(new))

    def sliced(values: te.Tensor, places: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def pick(*at: Any) -> Any:
            return values(*(places(0, k) + places(1, k) * i for k, i in enumerate(at)))

        return te.compute(sizes, pick, name="dynamic_strided_slice")

    return builder.call_te(sliced, data, places, new, primfunc_name_hint="dynamic_strided_slice")


def _slices(sizes: Sequence[Any], given: Sequence[te.Tensor], where: str) -> te.Tensor:
    """Compute the beginning, the stride and the length of a slice of each axis."""

    def body(inputs: Any, outputs: Any) -> Any:
        begins, ends, strides = inputs
        with IRBuilder() as builder:
            with T.serial(0, 1):
                for axis, size in enumerate(sizes):
                    size, most = tirx.Cast("int64", size), tirx.const(1 << 62, "int64")
                    begin, end, stride = (
                        tirx.BufferLoad(one, [axis]) for one in (begins, ends, strides)
                    )
                    with T.Assert(stride != 0, *_error("a slice has the step 0", where)):
                        pass
                    begin, end = (_moved(one, size, "") for one in (begin, end))
                    last = size - 1
                    forwards = stride > 0
                    begin = tirx.Select(
                        forwards, _limited(begin, 0, size), _limited(begin, 0, last)
                    )
                    end = tirx.Select(forwards, _limited(end, 0, size), _limited(end, -1, last))
                    stride = tirx.max(tirx.min(stride, most), -most)
                    span = tirx.Select(forwards, end - begin, begin - end)
                    step = tirx.Select(forwards, stride, -stride)
                    length = tirx.max(tirx.floordiv(span + step - 1, step), tirx.const(0, "int64"))
                    for row, value in enumerate((begin, stride, length)):
                        T.buffer_store(outputs[0], value, [row, axis])
            return builder.get()

    shape = (3, len(sizes))
    out = tirx.decl_buffer(shape, "int64", "places", layout=None)
    return te.extern([shape], list(given), body, "slice_places", "int64", out_buffers=[out])


def _limited(value: Any, low: int, high: Any) -> Any:
    return tirx.min(tirx.max(value, tirx.const(low, "int64")), high)


def _nll_loss(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, targets, *rest = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    emit, kind = rewriter.builder_.emit, str(targets.ty.dtype)
    spared = emit(op.equal(targets, relax.const(int(call.attrs.ignore_index), kind)))
    looked = emit(op.where(spared, relax.const(0, kind), targets))
    axis = min(len(shapes[0]) - 1, 1)
    where = f"nll_loss, axis {axis} of {_plain(shapes[0])}"
    checked = rewriter.within(not_below_zero(looked, emit), [shapes[0][axis]], where)
    targets = emit(op.where(spared, targets, emit(op.astype(checked, kind))))
    return relax.Call(call.op, [data, targets, *rest], call.attrs)


def _reverse_sequence(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    data, lengths = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    axis = int(call.attrs.seq_axis)
    where, kind = f"reverse_sequence, axis {axis} of {_plain(shapes[0])}", str(lengths.ty.dtype)
    lengths = rewriter.within(
        not_below_zero(lengths, rewriter.builder_.emit), [shapes[0][axis] + 1], where
    )
    lengths = rewriter.builder_.emit(op.astype(lengths, kind))
    return relax.Call(call.op, [data, lengths], call.attrs)


def _regions(rewriter: _Rewriter, call: relax.Call) -> relax.Expr:
    """Check the first column of regions, the number of the picture; it is a float."""
    data, regions = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    emit, kind = rewriter.builder_.emit, str(regions.ty.dtype)
    batch, corners = (
        emit(op.strided_slice(regions, [1], [start], [end])) for start, end in ((0, 1), (1, 5))
    )
    where = f"{call.op.name.removeprefix('relax.')}, pictures of {_plain(shapes[0])}"
    numbers = not_below_zero(emit(op.astype(batch, "int64")), emit)
    checked = emit(op.astype(rewriter.within(numbers, [shapes[0][0]], where), kind))
    return relax.Call(call.op, [data, emit(op.concat([checked, corners], 1))], call.attrs)


_OPERATORS: dict[str, Callable[[_Rewriter, relax.Call], relax.Expr]] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
    "relax.index_put": _index_put,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.nn.nll_loss": _nll_loss,
    "relax.reverse_sequence": _reverse_sequence,
    "relax.vision.roi_align": _regions,
    "relax.vision.roi_pool": _regions,
}
