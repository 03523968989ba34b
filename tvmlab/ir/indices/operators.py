"""The operators that index, each with a rule that checks its indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.relax import op

from .loops import ANALYZER, plain, slice_places, static
from .rewriter import Fits, Rewriter, on_cpu

__all__ = ["OPERATORS"]

Sizes = Sequence[Any]
#: For each operator, a function of the rewriter and the call.
OPERATORS: dict[str, Callable[[Rewriter, relax.Call], relax.Expr]] = {}


def _rule(
    *names: str, known: Sequence[int] = (0,), run_time: bool = False
) -> Callable[[Callable[..., relax.Expr]], Callable[..., relax.Expr]]:
    """Register a rule, which also gets the shapes of the `known` operands.

    Calls with unknown shapes stay as they are, and with `run_time` all, until indices are checked.
    """

    def register(rule: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
        def rewrite(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
            shapes = _dims(*(call.args[place] for place in known))
            if shapes is None or (run_time and not rewriter.check):
                return call
            return rule(rewriter, call, *shapes)

        OPERATORS.update({f"relax.{name}": rewrite for name in names})
        return rule

    return register


def _dims(*values: relax.Expr) -> list[list[Any]] | None:
    """Return the shapes, or None where one is unknown."""
    shapes = [value.ty.shape for value in values]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    return [list(shape.values) for shape in shapes]


def _with(call: relax.Call, place: int, operand: relax.Expr) -> relax.Call:
    """Return the call with another operand."""
    args = [*call.args[:place], operand, *call.args[place + 1 :]]
    return relax.Call(call.op, args, call.attrs)


def _equal(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    pairs = list(zip(one, other, strict=True))
    return [*pairs, *((b, a) for a, b in pairs)]


@_rule("take")
def _take(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    (data, indices), mode = call.args, str(call.attrs.mode)
    if mode == "nan":
        return call
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    extent, where = of[axis], f"take, axis {axis} of {plain(of)}"
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


@_rule("grad.take_backward", known=(0, 1, 2), run_time=True)
def _take_backward(
    rewriter: Rewriter, call: relax.Call, new: Sizes, of: Sizes, by: Sizes
) -> relax.Expr:
    grad, data, indices = call.args
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


@_rule("gather_elements", known=(0, 1))
def _gather_elements(rewriter: Rewriter, call: relax.Call, of: Sizes, by: Sizes) -> relax.Expr:
    data, indices = call.args
    axis = int(call.attrs.axis) % len(of)
    fits = [(by[k], of[k]) for k in range(len(of)) if k != axis]
    where = f"gather_elements, axis {axis} of {plain(of)}"
    return op.gather_elements(data, rewriter.within(indices, [of[axis]], where, fits), axis)


@_rule("gather_nd", known=(0, 1))
def _gather_nd(rewriter: Rewriter, call: relax.Call, of: Sizes, by: Sizes) -> relax.Expr:
    batch = int(call.attrs.batch_dims)
    extents = of[batch : batch + int(by[-1])]
    where = f"gather_nd of {plain(of)}, {batch} axes of batches"
    fits = _equal(by[:batch], of[:batch])
    return _with(call, 1, rewriter.within(call.args[1], extents, where, fits))


@_rule("scatter_elements", known=(0, 1, 2))
def _scatter_elements(
    rewriter: Rewriter, call: relax.Call, of: Sizes, by: Sizes, new: Sizes
) -> relax.Expr:
    data, indices, updates = call.args
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


@_rule("scatter_nd", known=(0, 1, 2))
def _scatter_nd(
    rewriter: Rewriter, call: relax.Call, of: Sizes, by: Sizes, new: Sizes
) -> relax.Expr:
    many = int(by[-1])
    fits = _equal([*by[:-1], *of[many:]], new)
    where = f"scatter_nd of {plain(of)}"
    return _with(call, 1, rewriter.within(call.args[1], of[:many], where, fits))


@_rule("index_tensor")
def _index_tensor(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    found = _each(rewriter, call, of, "index_tensor")
    return call if found is None else op.index_tensor(call.args[0], found[0])


@_rule("index_put", run_time=True)
def _index_put(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    data, _, values = call.args
    found = _each(rewriter, call, of, "index_put")
    if found is None:
        return call
    checked, whole = found
    emit = rewriter.builder_.emit
    # Upstream's loop reads one value for each index, and its threads add to one element at once.
    places = [emit(op.broadcast_to(indices, whole)) for indices in checked]
    values = emit(op.broadcast_to(values, whole))
    reduction = "add" if call.attrs.accumulate else "update"
    return op.scatter_nd(data, emit(op.stack(places, -1)), values, reduction)


def _each(
    rewriter: Rewriter, call: relax.Call, of: Sizes, name: str
) -> tuple[list[relax.Expr], Sizes] | None:
    """Return checked indices, one tensor for each axis, and the shape that they broadcast to."""
    given = call.args[1]
    found, written = [given], rewriter.value(given)
    if isinstance(written, relax.Tuple):
        found = list(written.fields)
    elif isinstance(given.ty, relax.TupleType):
        places = range(len(given.ty.fields))
        found = [rewriter.builder_.emit(relax.TupleGetItem(given, place)) for place in places]
    by = _dims(*found)
    if by is None:
        return None
    whole, checked = _broadcast(by), []
    for axis, (indices, shape) in enumerate(zip(found, by, strict=True)):
        pairs = zip(reversed(shape), reversed(whole), strict=False)
        fits = [pair for pair in pairs if static(pair[0]) != 1]
        fits += [(b, a) for a, b in fits]
        where = f"{name}, axis {axis} of {plain(of)}"
        checked.append(rewriter.within(indices, [of[axis]], where, fits))
    return checked, whole


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    made: list[Any] = [1] * max(map(len, shapes))
    for shape in shapes:
        for k, size in enumerate(reversed(shape), 1):
            if static(made[-k]) == 1:
                made[-k] = size
    return made


@_rule("dynamic_strided_slice", run_time=True)
def _dynamic_strided_slice(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    """Slice as ONNX does; upstream's loop makes shapes below zero and divides by zero."""
    if not on_cpu():
        return call
    data, builder = call.args[0], rewriter.builder_
    where = f"dynamic_strided_slice of {plain(of)}"
    places = builder.emit(
        builder.call_te(
            lambda sizes, *given: slice_places(sizes, given, where),
            list(of),
            *call.args[1:],
            primfunc_name_hint="slice_places",
        )
    )
    sizes = builder.emit(op.squeeze(builder.emit(op.strided_slice(places, [0], [2], [3])), [0]))
    shape = builder.emit(op.tensor_to_shape(sizes))
    new = [tirx.Var(f"size_{k}", "int64") for k in range(len(of))]
    builder.match_cast(shape, relax.ShapeType(new))

    def sliced(values: te.Tensor, places: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        def pick(*at: Any) -> Any:
            return values(*(places(0, k) + places(1, k) * i for k, i in enumerate(at)))

        return te.compute(sizes, pick, name="dynamic_strided_slice")

    return builder.call_te(sliced, data, places, new, primfunc_name_hint="dynamic_strided_slice")


@_rule("nn.nll_loss", known=(0, 1), run_time=True)
def _nll_loss(rewriter: Rewriter, call: relax.Call, of: Sizes, by: Sizes) -> relax.Expr:
    classes = of[min(len(of) - 1, 1)]
    return _with(call, 1, _classes(rewriter, call, call.args[1], of, by, classes))


@_rule("grad.nll_loss_backward", known=(0, 1, 2), run_time=True)
def _nll_loss_backward(
    rewriter: Rewriter, call: relax.Call, new: Sizes, of: Sizes, by: Sizes
) -> relax.Expr:
    """Check the classes; upstream's loop reads the weights of those to ignore, too."""
    grad, data, targets, *rest = call.args
    weighted = _dims(*rest)
    if weighted is None:
        return call
    emit, kind = rewriter.builder_.emit, str(data.ty.dtype)
    classes = weighted[0][0] if weighted else of[min(len(of) - 1, 1)]
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
    of: Sizes,
    by: Sizes,
    classes: Any,
    fits: Fits = (),
) -> relax.Expr:
    axis = min(len(of) - 1, 1)
    where = f"{call.op.name.split('.')[-1]}, axis {axis} of {plain(of)}"
    fits = [*_equal([*of[:axis], *of[axis + 1 :]], by), (of[axis], classes), *fits]
    ignored = int(call.attrs.ignore_index)
    return rewriter.within(targets, [classes], where, fits, from_end=False, spared=ignored)


@_rule("reverse_sequence", run_time=True)
def _reverse_sequence(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    axis = int(call.attrs.seq_axis)
    where = f"reverse_sequence, axis {axis} of {plain(of)}"
    return _with(call, 1, rewriter.within(call.args[1], [of[axis] + 1], where, from_end=False))


@_rule("vision.roi_align", "vision.roi_pool", run_time=True)
def _regions(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    """Check regions' first column, the number of the picture, and their corners; all are floats."""
    data, regions = call.args
    emit, kind = rewriter.builder_.emit, str(regions.ty.dtype)
    batch, corners, first, last = (
        emit(op.strided_slice(regions, [1], [start], [end]))
        for start, end in ((0, 1), (1, 5), (1, 3), (3, 5))
    )
    name = call.op.name.removeprefix("relax.")
    where = f"{name}, pictures of {plain(of)}, or a corner that is not finite or too large"
    numbers = emit(op.astype(batch, "int64"))
    # Upstream converts the corners to int32.
    scale = relax.const(call.attrs.spatial_scale, kind)
    most = relax.const(2.0**15 if kind == "float16" else 2.0**30, kind)
    known = emit(op.less(emit(op.abs(emit(op.multiply(corners, scale)))), most))
    outside = relax.const(np.iinfo("int64").max, "int64")
    numbers = emit(op.where(_every(known, emit), numbers, outside))
    checked = rewriter.within(numbers, [of[0]], where, from_end=False)
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


@_rule("image.grid_sample", known=(), run_time=True)
def _grid_sample(rewriter: Rewriter, call: relax.Call) -> relax.Expr:
    """Move places far outside of a picture nearer; upstream converts them to int32 and weighs."""
    if call.attrs.method != "bicubic" or call.attrs.padding_mode == "reflection":
        return call
    return _with(call, 1, rewriter.builder_.emit(op.clip(call.args[1], -1e3, 1e3)))


@_rule("multinomial_from_uniform", run_time=True)
def _multinomial(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    """Check the rows of probabilities that are sampled from."""
    where = f"multinomial_from_uniform, axis 0 of {plain(of)}"
    return _with(call, 2, _alike(rewriter, call.args[2], of[0], where))


@_rule("vision.non_max_suppression", run_time=True)
def _non_max_suppression(rewriter: Rewriter, call: relax.Call, of: Sizes) -> relax.Expr:
    """Check the numbers of valid boxes; upstream's sort goes as far as they say."""
    where = f"non_max_suppression, numbers of boxes of {plain(of)}"
    return _with(call, 1, _alike(rewriter, call.args[1], of[1] + 1, where))


def _alike(rewriter: Rewriter, indices: relax.Expr, extent: Any, where: str) -> relax.Expr:
    """Return checked indices in the dtype that they had; none count from the end."""
    checked = rewriter.within(indices, [extent], where, from_end=False)
    return rewriter.builder_.emit(op.astype(checked, str(indices.ty.dtype)))
