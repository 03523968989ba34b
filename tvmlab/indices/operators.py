"""The operators that index, each with a function that inserts the checks of its indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tvm import ir, relax, te, tirx
from tvm.relax import op

from .loops import ANALYZER, plain, same, shape_of, slice_places, static

if TYPE_CHECKING:
    from .checker import Checker

__all__ = ["RULES"]

Sizes = Sequence[Any]
#: For each operator, a function of the checker and the call.
RULES: dict[str, Callable[[Checker, relax.Call], relax.Expr]] = {}


def _rule(name: str, known: int, run_time: bool = False) -> Callable[[Any], Any]:
    """Register a rewrite function, which also gets the shapes of the first `known` operands.

    Calls with unknown shapes are kept, and with `run_time` all calls until indices are checked.
    """

    def register(rule: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
        def rewrite(checker: Checker, call: relax.Call) -> relax.Expr:
            shapes = [shape_of(operand.ty) for operand in call.args[:known]]
            if None in shapes or (run_time and not checker.check):
                return call
            return rule(checker, call, *shapes)

        RULES[f"relax.{name}"] = rewrite
        return rule

    return register


def _with(call: relax.Call, indices: relax.Expr) -> relax.Call:
    """Return the call with another second operand, the indices."""
    return relax.Call(call.op, [call.args[0], indices, *call.args[2:]], call.attrs)


@_rule("take", 1)
def _take(checker: Checker, call: relax.Call, of: Sizes) -> relax.Expr:
    (data, indices), mode = call.args, str(call.attrs.mode)
    if mode != "fast":
        return call
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    if isinstance(indices, tirx.IntImm):
        indices = relax.const(int(indices), "int64")
    elif ir.is_prim_expr(indices):
        tensor = checker.emit(op.shape_to_tensor(relax.ShapeExpr([indices])))
        indices = checker.emit(op.reshape(tensor, []))
    where = f"take, axis {axis} of {plain(of)}"
    checked = checker.within(indices, [of[axis]], where, data)
    # Every index is inside the axis now. Upstream warns about the mode "fast".
    return op.take(data, checked, call.attrs.axis, "clip" if checker.check else mode)


@_rule("gather_elements", 2)
def _gather_elements(checker: Checker, call: relax.Call, of: Sizes, _: Sizes) -> relax.Expr:
    data, indices = call.args
    axis = int(call.attrs.axis) % len(of)
    where = f"gather_elements, axis {axis} of {plain(of)}"
    return op.gather_elements(data, checker.within(indices, [of[axis]], where, data), axis)


@_rule("gather_nd", 2)
def _gather_nd(checker: Checker, call: relax.Call, of: Sizes, by: Sizes) -> relax.Expr:
    batch = int(call.attrs.batch_dims)
    extents = of[batch : batch + int(by[-1])]
    where = f"gather_nd of {plain(of)}, {batch} axes of batches"
    return _with(call, checker.within(call.args[1], extents, where, call.args[0]))


@_rule("scatter_elements", 3)
def _scatter_elements(
    checker: Checker, call: relax.Call, of: Sizes, by: Sizes, _: Sizes
) -> relax.Expr:
    data, indices, updates = call.args
    axis = int(call.attrs.axis) % len(of)
    where = f"scatter_elements, axis {axis} of {plain(of)}"
    checked = checker.within(indices, [of[axis]], where, data)
    reduction = str(call.attrs.reduction)
    # Upstream computes offsets with the indices' strides, so these axes must have equal sizes.
    alike = [k for k in range(1, len(of)) if k not in (axis, axis + 1)]
    if not checker.check or all(ANALYZER.can_prove_equal(of[k], by[k]) for k in alike):
        return op.scatter_elements(data, checked, updates, axis, reduction)

    def places(indices: te.Tensor) -> te.Tensor:
        def place(*at: Any) -> Any:
            found = tirx.Cast("int64", indices(*at[:-1]))
            for k, position in enumerate(at[:-1]):
                if k != axis:
                    found = tirx.Select(at[-1] == k, tirx.Cast("int64", position), found)
            return found

        return te.compute([*indices.shape, len(of)], place, name="scatter_places")

    made = checker.emit_te(places, checked, name="scatter_places")
    return op.scatter_nd(data, made, updates, reduction)


@_rule("scatter_nd", 3)
def _scatter_nd(checker: Checker, call: relax.Call, of: Sizes, by: Sizes, _: Sizes) -> relax.Expr:
    where = f"scatter_nd of {plain(of)}"
    checked = checker.within(call.args[1], of[: int(by[-1])], where, call.args[0])
    return _with(call, checked)


@_rule("index_tensor", 1)
def _index_tensor(checker: Checker, call: relax.Call, of: Sizes) -> relax.Expr:
    found = _each(checker, call, of)
    return op.index_tensor(call.args[0], found) if found else call


@_rule("index_put", 1, run_time=True)
def _index_put(checker: Checker, call: relax.Call, of: Sizes) -> relax.Expr:
    data, _, values = call.args
    places = _each(checker, call, of)
    if not places:
        return call
    # Upstream's loop reads one value per index, and its threads add to the same element at once.
    values = _spread(checker, values, shape_of(places[0].ty) or [])
    reduction = "add" if call.attrs.accumulate else "update"
    return op.scatter_nd(data, checker.emit(op.stack(places, -1)), values, reduction)


def _each(checker: Checker, call: relax.Call, of: Sizes) -> list[relax.Expr]:
    """Return checked indices of one shape, a tensor per axis; an empty list for unknown shapes."""
    given, name = call.args[1], call.op.name.removeprefix("relax.")
    written = checker.value(given)
    if isinstance(written, relax.Tuple):
        found = list(written.fields)
    elif isinstance(given.ty, relax.TupleType):
        found = [checker.emit(relax.TupleGetItem(given, k)) for k in range(len(given.ty.fields))]
    else:
        found = [given]
    shapes = [shape for one in found if (shape := shape_of(one.ty)) is not None]
    if len(shapes) < len(found):
        return []
    whole: list[Any] = [1] * max(map(len, shapes))
    for shape in shapes:
        for k, size in enumerate(reversed(shape), 1):
            whole[-k] = size if static(whole[-k]) == 1 else whole[-k]
    checked = [
        checker.within(indices, [of[axis]], f"{name}, axis {axis} of {plain(of)}", call.args[0])
        for axis, indices in enumerate(found)
    ]
    return [_spread(checker, one, whole) for one in checked] if checker.check else checked


def _spread(checker: Checker, value: relax.Expr, shape: Sizes) -> relax.Expr:
    """Broadcast a tensor after a check that its shape fits."""
    if same(value.ty.shape, relax.ShapeExpr(list(shape))):
        return value
    call = checker.builder_.normalize(op.broadcast_to(value, shape))
    return checker.emit(checker.fitted(call))


@_rule("dynamic_strided_slice", 1, run_time=True)
def _dynamic_strided_slice(checker: Checker, call: relax.Call, of: Sizes) -> relax.Expr:
    """Slice as ONNX does, with positive steps; upstream's loop computes negative sizes."""
    data, begins, ends, steps = call.args
    where, fix = f"the steps of a slice of {plain(of)}", "give steps above 0"
    stopped = checker.emit(op.less(steps, relax.const(1, str(steps.ty.dtype))))
    stopped = checker.emit(op.astype(stopped, "int64"))
    zero = checker.within(stopped, [1], where, fix=fix)
    steps = checker.emit(op.add(checker.emit(op.astype(steps, "int64")), zero))
    made = checker.emit_te(slice_places, list(of), begins, ends, steps, name="slice_places")
    first, step, lengths = (checker.emit(relax.TupleGetItem(made, place)) for place in range(3))
    sizes = [tirx.Var(f"size_{axis}", "int64") for axis in range(len(of))]
    shape = checker.emit(op.tensor_to_shape(lengths))
    checker.builder_.match_cast(shape, relax.ShapeType(sizes))

    def sliced(
        values: te.Tensor, first: te.Tensor, step: te.Tensor, sizes: Sequence[Any]
    ) -> te.Tensor:
        def pick(*at: Any) -> Any:
            return values(*(first(k) + step(k) * i for k, i in enumerate(at)))

        return te.compute(sizes, pick)

    return checker.emit_te(sliced, data, first, step, sizes, name="dynamic_strided_slice")


@_rule("image.grid_sample", 0, run_time=True)
def _grid_sample(checker: Checker, call: relax.Call) -> relax.Expr:
    """Clip coordinates far outside an image, because upstream's kernel converts them to int32."""
    if call.attrs.method != "bicubic" or call.attrs.padding_mode == "reflection":
        return call
    return _with(call, checker.emit(op.clip(call.args[1], -1e3, 1e3)))
