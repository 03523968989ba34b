"""The operators that index, each with a function that checks its indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.relax import op

from .loops import ANALYZER, plain, slice_places, static
from .rewriter import Fits, Rewriter, on_cpu

__all__ = ["OPERATORS"]


def _dims(*values: relax.Expr) -> list[list[Any]] | None:
    """Return the shapes, or None where one is unknown."""
    shapes = [value.ty.shape for value in values]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    return [list(shape.values) for shape in shapes]


def _equal(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    pairs = list(zip(one, other, strict=True))
    return [*pairs, *((b, a) for a, b in pairs)]


def _take(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    (data, indices), mode = call.args, str(call.attrs.mode)
    shapes = _dims(data)
    if shapes is None or mode == "nan":
        return call
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    extent, where = shapes[0][axis], f"take, axis {axis} of {plain(shapes[0])}"
    if mode in ("clip", "wrap"):
        if not rewriter.check or ANALYZER.can_prove(extent >= 1):
            return call
    else:
        mode = ""
    if ir.is_prim_expr(indices):
        indices = _scalar(rewriter, indices)
    checked = rewriter.within(indices, [extent], where, mode=mode)
    # Every index is inside now. Upstream warns of the mode "fast".
    kept = str(call.attrs.mode) if not rewriter.check else "clip"
    return op.take(data, checked, call.attrs.axis, kept)


def _take_backward(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    grad, data, indices = call.args
    shapes = _dims(*call.args)
    if shapes is None or not rewriter.check:
        return call
    new, of, by = shapes
    # Upstream's loop counts no axis from the end. Without an axis, the data has one.
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(of)
    where = f"take_backward, axis {axis} of {plain(of)}"
    fits = _equal(new, [*of[:axis], *by, *of[axis + 1 :]])
    checked = rewriter.within(indices, [of[axis]], where, fits)
    return op.grad.take_backward(grad, data, checked, axis)


def _scalar(rewriter: Rewriter, number: Any) -> relax.Expr:
    if isinstance(number, tirx.IntImm):
        return relax.const(int(number), "int64")
    tensor = rewriter.builder_.emit(op.shape_to_tensor(relax.ShapeExpr([number])))
    return rewriter.builder_.emit(op.reshape(tensor, []))


def _gather_elements(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, indices = call.args
    shapes = _dims(data, indices)
    if shapes is None:
        return call
    axis = int(call.attrs.axis) % len(shapes[0])
    fits = [(b, a) for k, (a, b) in enumerate(zip(*shapes, strict=True)) if k != axis]
    where = f"gather_elements, axis {axis} of {plain(shapes[0])}"
    checked = rewriter.within(indices, [shapes[0][axis]], where, fits)
    return op.gather_elements(data, checked, axis)


def _gather_nd(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    (data, indices), batch = call.args, int(call.attrs.batch_dims)
    shapes = _dims(data, indices)
    if shapes is None:
        return call
    of, by = shapes
    extents = of[batch : batch + int(by[-1])]
    where = f"gather_nd of {plain(of)}, {batch} axes of batches"
    checked = rewriter.within(indices, extents, where, _equal(by[:batch], of[:batch]))
    return op.gather_nd(data, checked, batch)


def _scatter_elements(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, indices, updates = call.args
    shapes = _dims(data, indices, updates)
    if shapes is None:
        return call
    of, by, new = shapes
    axis = int(call.attrs.axis) % len(of)
    fits = [(by[k], of[k]) for k in range(len(of)) if k != axis]
    where = f"scatter_elements, axis {axis} of {plain(of)}"
    checked = rewriter.within(indices, [of[axis]], where, fits + _equal(by, new))
    reduction = str(call.attrs.reduction)
    # Upstream computes offsets with the strides of the indices: these axes must have equal sizes.
    alike = [k for k in range(1, len(of)) if k not in (axis, axis + 1)]
    if not rewriter.check or all(ANALYZER.can_prove_equal(of[k], by[k]) for k in alike):
        return op.scatter_elements(data, checked, updates, axis, reduction)

    def places(indices: te.Tensor) -> te.Tensor:
        def place(*at: Any) -> Any:
            found = tirx.Cast("int64", indices(*at[:-1]))
            for k, position in enumerate(at[:-1]):
                if k != axis:
                    found = tirx.Select(at[-1] == k, tirx.Cast("int64", position), found)
            return found

        return te.compute([*indices.shape, len(of)], place, name="scatter_places")

    builder = rewriter.builder_
    made = builder.emit(builder.call_te(places, checked, primfunc_name_hint="scatter_places"))
    return op.scatter_nd(data, made, updates, reduction)


def _scatter_nd(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, indices, updates = call.args
    shapes = _dims(data, indices, updates)
    if shapes is None:
        return call
    of, by, new = shapes
    many = int(by[-1])
    where = f"scatter_nd of {plain(of)}"
    fits = _equal([*by[:-1], *of[many:]], new)
    checked = rewriter.within(indices, of[:many], where, fits)
    return op.scatter_nd(data, checked, updates, str(call.attrs.reduction))


def _index_tensor(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, found = call.args[0], _fields(rewriter, call)
    shapes = _dims(data, *found)
    if shapes is None:
        return call
    return op.index_tensor(data, _each(rewriter, found, shapes, "index_tensor"))


def _index_put(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
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


def _fields(rewriter: Rewriter, call: relax.Call) -> list[relax.Expr]:
    """Return the index tensors of a call, one for each axis."""
    indices = call.args[1]
    if not isinstance(indices.ty, relax.TupleType):
        return [indices]
    written = rewriter.value(indices)
    if isinstance(written, relax.Tuple):
        return list(written.fields)
    many = range(len(indices.ty.fields))
    return [rewriter.builder_.emit(relax.TupleGetItem(indices, k)) for k in many]


def _each(
    rewriter: Rewriter, found: Sequence[relax.Expr], shapes: Sequence[Any], name: str
) -> list[relax.Expr]:
    of, *by = shapes
    whole = _broadcast(by)
    checked = []
    for axis, (indices, shape) in enumerate(zip(found, by, strict=True)):
        pairs = zip(reversed(shape), reversed(whole), strict=False)
        fits = [pair for pair in pairs if static(pair[0]) != 1]
        fits += [(b, a) for a, b in fits]
        where = f"{name}, axis {axis} of {plain(of)}"
        checked.append(rewriter.within(indices, [of[axis]], where, fits))
    return checked


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    made: list[Any] = [1] * max(map(len, shapes))
    for shape in shapes:
        for k, size in enumerate(reversed(shape), 1):
            if static(made[-k]) == 1:
                made[-k] = size
    return made


def _dynamic_strided_slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Slice as ONNX does; upstream's loop makes shapes below zero and divides by zero."""
    data, builder = call.args[0], rewriter.builder_
    shapes = _dims(data)
    if shapes is None or not rewriter.check or not on_cpu():
        return call
    ndim, where = len(shapes[0]), f"dynamic_strided_slice of {plain(shapes[0])}"
    places = builder.emit(
        builder.call_te(
            lambda sizes, *given: slice_places(sizes, given, where),
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


def _nll_loss(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, targets, *rest = call.args
    shapes = _dims(*call.args)
    if shapes is None or not rewriter.check:
        return call
    axis = min(len(shapes[0]) - 1, 1)
    checked = _classes(rewriter, call, targets, shapes[0], shapes[1], shapes[0][axis])
    return relax.Call(call.op, [data, checked, *rest], call.attrs)


def _nll_loss_backward(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Check the classes; upstream's loop reads the weights of those to ignore, too."""
    grad, data, targets, *rest = call.args
    shapes = _dims(*call.args)
    if shapes is None or not rewriter.check:
        return call
    new, of, by, *more = shapes
    emit, kind = rewriter.builder_.emit, str(data.ty.dtype)
    classes = more[0][0] if more else of[min(len(of) - 1, 1)]
    fits = _equal(new, by) if call.attrs.reduction == "none" else []
    checked = _classes(rewriter, call, targets, of, by, classes, fits)
    # Targets to ignore become one more class, whose weight is 0.
    weights = rest[0] if rest else emit(op.ones([classes], kind))
    weights = emit(op.concat([weights, emit(op.zeros([1], kind))], 0))
    ignored = emit(op.equal(checked, relax.const(int(call.attrs.ignore_index), "int64")))
    targets = emit(op.where(ignored, _scalar(rewriter, classes), checked))
    return relax.Call(call.op, [grad, data, targets, weights], call.attrs)


def _classes(
    rewriter: Rewriter,
    call: relax.Call,
    targets: relax.Expr,
    of: Sequence[Any],
    by: Sequence[Any],
    classes: Any,
    fits: Fits = (),
) -> relax.Expr:
    axis = min(len(of) - 1, 1)
    where = f"{call.op.name.split('.')[-1]}, axis {axis} of {plain(of)}"
    fits = [*_equal([*of[:axis], *of[axis + 1 :]], by), (of[axis], classes), *fits]
    ignored = int(call.attrs.ignore_index)
    return rewriter.within(targets, [classes], where, fits, from_end=False, spared=ignored)


def _reverse_sequence(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    data, lengths = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    axis = int(call.attrs.seq_axis)
    where = f"reverse_sequence, axis {axis} of {plain(shapes[0])}"
    lengths = rewriter.within(lengths, [shapes[0][axis] + 1], where, from_end=False)
    return relax.Call(call.op, [data, lengths], call.attrs)


def _regions(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Check regions' first column, the number of the picture, and their corners; all are floats."""
    data, regions = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    emit, kind = rewriter.builder_.emit, str(regions.ty.dtype)
    batch, corners, first, last = (
        emit(op.strided_slice(regions, [1], [start], [end]))
        for start, end in ((0, 1), (1, 5), (1, 3), (3, 5))
    )
    name = call.op.name.removeprefix("relax.")
    where = f"{name}, pictures of {plain(shapes[0])}, or a corner that is not finite or too large"
    numbers = emit(op.astype(batch, "int64"))
    # Upstream converts the corners to int32.
    scale = relax.const(call.attrs.spatial_scale, kind)
    most = relax.const(2.0**15 if kind == "float16" else 2.0**30, kind)
    known = emit(op.less(emit(op.abs(emit(op.multiply(corners, scale)))), most))
    outside = relax.const(np.iinfo("int64").max, "int64")
    numbers = emit(op.where(_every(known, emit), numbers, outside))
    checked = rewriter.within(numbers, [shapes[0][0]], where, from_end=False)
    checked = emit(op.astype(checked, kind))
    made = relax.Call(call.op, [data, emit(op.concat([checked, corners], 1))], call.attrs)
    if name != "vision.roi_align" or int(call.attrs.sample_ratio) > 0 or not call.attrs.aligned:
        return made
    # A region without extent has no samples, and upstream's loop writes no result for it.
    extents = emit(op.subtract(emit(op.multiply(last, scale)), emit(op.multiply(first, scale))))
    some = _every(emit(op.greater(extents, relax.const(0, kind))), emit)
    some = emit(op.reshape(some, [-1, 1, 1, 1]))
    return op.where(some, emit(made), relax.const(0, str(data.ty.dtype)))


def _every(truths: relax.Expr, emit: Callable[[relax.Expr], relax.Var]) -> relax.Expr:
    """Return for each row, kept as an axis of one, whether it is true everywhere."""
    least = emit(op.min(emit(op.astype(truths, "int32")), [1], True))
    return emit(op.astype(least, "bool"))


def _grid_sample(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Move places far outside of a picture nearer; upstream converts them to int32 and weighs."""
    far = call.attrs.method == "bicubic" and call.attrs.padding_mode != "reflection"
    if not rewriter.check or not far:
        return call
    data, grid = call.args
    return relax.Call(call.op, [data, rewriter.builder_.emit(op.clip(grid, -1e3, 1e3))], call.attrs)


def _multinomial(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Check the rows of probabilities that are sampled from."""
    probabilities, samples, rows = call.args
    shapes = _dims(probabilities)
    if shapes is None or not rewriter.check:
        return call
    emit, kind = rewriter.builder_.emit, str(rows.ty.dtype)
    where = f"multinomial_from_uniform, axis 0 of {plain(shapes[0])}"
    checked = rewriter.within(rows, [shapes[0][0]], where, from_end=False)
    checked = emit(op.astype(checked, kind))
    return relax.Call(call.op, [probabilities, samples, checked], call.attrs)


def _non_max_suppression(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Check the numbers of valid boxes; upstream's sort goes as far as they say."""
    data, counts, *rest = call.args
    shapes = _dims(data)
    if shapes is None or not rewriter.check:
        return call
    emit, kind = rewriter.builder_.emit, str(counts.ty.dtype)
    where = f"non_max_suppression, numbers of boxes of {plain(shapes[0])}"
    checked = rewriter.within(counts, [shapes[0][1] + 1], where, from_end=False)
    checked = emit(op.astype(checked, kind))
    return relax.Call(call.op, [data, checked, *rest], call.attrs)


OPERATORS: dict[str, Callable[[Rewriter, relax.Call], relax.Expr]] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
    "relax.index_put": _index_put,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.nn.nll_loss": _nll_loss,
    "relax.grad.nll_loss_backward": _nll_loss_backward,
    "relax.grad.take_backward": _take_backward,
    "relax.reverse_sequence": _reverse_sequence,
    "relax.vision.roi_align": _regions,
    "relax.vision.roi_pool": _regions,
    "relax.image.grid_sample": _grid_sample,
    "relax.multinomial_from_uniform": _multinomial,
    "relax.vision.non_max_suppression": _non_max_suppression,
}
