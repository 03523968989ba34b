"""Loops in TE that check indices and sizes, and the conditions on sizes of each operator."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..errors import CompileError

ANALYZER = tvm.sym.Analyzer()
# Of relax/transform/fuse_ops.cc (OpPatternKind): such functions stay alone.
_OPAQUE = 8


def checked_indices(
    indices: te.Tensor,
    extents: Sequence[Any],
    where: str,
    fix: str,
    from_end: bool,
) -> te.Tensor:
    """Copy indices as int64 and assert that all are inside their axes.

    With `from_end`, negative indices count from the end.
    """
    loops = indices.shape if len(extents) == 1 else indices.shape[:-1]

    def body(inputs: Any, outputs: Any) -> Any:
        given, made = inputs[0], outputs[0]
        with IRBuilder() as builder:
            # A loop of one iteration, because several statements need a block.
            with T.serial(0, 1):
                # One assertion after the loop keeps the loop vectorizable.
                outside = T.alloc_buffer((1,), "int32", scope="local")
                T.buffer_store(outside, tirx.const(0, "int32"), [0])
                with T.grid(*(loops or [1])) as at:
                    at = [at] if isinstance(at, tirx.Var) else list(at)
                    for j, extent in enumerate(extents):
                        place = [*at, j] if len(extents) > 1 else at[: len(loops)]
                        size = tirx.Cast("int64", extent)
                        value = _counted(tirx.BufferLoad(given, place), size, from_end)
                        beyond = tirx.any(value < 0, value >= size)
                        T.buffer_store(outside, outside[0] | tirx.Cast("int32", beyond), [0])
                        T.buffer_store(made, value, place)
                inside = outside[0] == tirx.const(0, "int32")
                with T.Assert(inside, *_error("an index is out of range", where, fix)):
                    pass
            return builder.get()

    out = tirx.decl_buffer(indices.shape, "int64", "checked", layout=None)
    return te.extern([indices.shape], [indices], body, "check_indices", "int64", out_buffers=[out])


def _counted(index: Any, size: Any, from_end: bool = True) -> Any:
    """Return an index as int64; with `from_end`, negative indices count from the end."""
    if str(index.ty.dtype) == "uint64":  # TVM assumes that a cast from uint64 is at least 0
        index = tirx.min(index, tirx.const((1 << 63) - 1, "uint64"))
    value = tirx.Cast("int64", index)
    return tirx.if_then_else(value < 0, value + size, value) if from_end else value


def slice_places(
    sizes: Sequence[Any], begins: te.Tensor, ends: te.Tensor, steps: te.Tensor
) -> list[te.Tensor]:
    """Return begins, steps and lengths of slices, clamped to the axes as ONNX defines."""

    def places(k: Any) -> list[Any]:
        size = zero = tirx.const(0, "int64")
        for axis, extent in enumerate(sizes):
            size = tirx.Select(k == axis, tirx.Cast("int64", extent), size)
        begin, end = (_limited(_counted(one(k), size), zero, size) for one in (begins, ends))
        step = _limited(steps(k), tirx.const(1, "int64"), size + 1)
        return [begin, step, tirx.max(tirx.floordiv(end - begin + step - 1, step), zero)]

    def part(place: int) -> te.Tensor:
        return te.compute((len(sizes),), lambda k: places(k)[place])

    return [part(place) for place in range(3)]


def _limited(value: Any, low: Any, high: Any) -> Any:
    return tirx.min(tirx.max(value, low), high)


def opaque(
    builder: relax.BlockBuilder, make: Callable[..., Any], *args: Any, name: str
) -> relax.Var:
    """Bind the result of a check, which is not fused with what depends on it."""
    attrs = {"op_pattern": _OPAQUE}
    made = builder.call_te(make, *args, primfunc_name_hint=name, primfunc_attrs=attrs)
    return builder.emit(made)


def on_cpu() -> bool:
    """Return whether the current target can raise errors, which a GPU cannot."""
    target = tvm.target.Target.current(allow_none=True)
    return target is None or "cpu" in target.keys


def checked_sizes(conditions: Sequence[Any], where: str) -> te.Tensor:
    """Assert conditions on sizes, and return one zero that depends on the assertion."""

    def body(_: Any, outputs: Any) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):
                for condition in conditions:
                    fix = f"give inputs with {size_text(condition)}"
                    with T.Assert(condition, *_error("shapes do not fit", where, fix)):
                        pass
                T.buffer_store(outputs[0], tirx.const(0, "int64"), [0])
            return builder.get()

    out = tirx.decl_buffer((1,), "int64", "checked", layout=None)
    return te.extern([(1,)], [], body, "check_sizes", "int64", out_buffers=[out])


def _error(
    what: str, where: str, fix: str = "correct the operands' shapes"
) -> tuple[list[str], str]:
    return [str(CompileError(what, where=where, fix=fix))], "tvmlab.OutOfRangeError"


def advice(extents: Sequence[Any], from_end: bool) -> str:
    """Return the ranges of valid indices as a sentence."""
    names = [(static(extent), size_text(extent)) for extent in extents]
    ranges = [
        f"{f'-{name}' if from_end else 0} to {name + ' - 1' if n is None else n - 1}"
        for n, name in names
    ]
    return f"give indices from {' and from '.join(dict.fromkeys(ranges))}"


def static(size: Any) -> int | None:
    """Return a size as an int, or None where it is symbolic."""
    return int(size) if isinstance(size, (int, tirx.IntImm)) else None


def same(one: Any, other: Any) -> bool:
    """Return whether two expressions, or types, are the same."""
    return bool(one.same_as(other) or tvm_ffi.structural_equal(one, other))


def plain(sizes: Sequence[Any]) -> str:
    """Return a shape as text."""
    return f"[{', '.join(map(size_text, sizes))}]"


def size_text(size: Any) -> str:
    """Return one size, or a condition on sizes, as text."""
    return re.sub(r"T\.(int64\((-?\d+)\))?", r"\2", str(size)).replace("+ -", "- ")


# Conditions on sizes. A condition that is not always true becomes an assertion before the operator.

#: The sizes of one tensor, and those of several tensors.
Shape = Sequence[Any]
Shapes = Sequence[Any]
#: Operators whose sizes can mismatch although all of them are known.
UNCHECKED = ("relax.nn.pad", "relax.topk")


def shape_of(ty: Any) -> list[Any] | None:
    """Return the sizes of a tensor, or of the first tensor in a tuple; None if they are unknown."""
    if isinstance(ty, relax.TupleType):
        return shape_of(ty.fields[0]) if len(ty.fields) else None
    known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if known else None


def symbolic(call: relax.Call) -> bool:
    """Return whether a call has sizes that are known only at run time, or assumes such sizes."""
    return getattr(call.attrs, "assume_inbound", False) or any(
        relax.analysis.tir_vars_in_type(one.ty) for one in (call, *call.args)
    )


def _same(one: Any, other: Any) -> Any:
    return tirx.EQ(*(tirx.const(0, "int64") + size for size in (one, other)))


def _at_least(size: Any, least: Any) -> Any:
    return tirx.GE(*(tirx.const(0, "int64") + number for number in (size, least)))


def _equal(one: Shape, other: Shape) -> list[Any]:
    return [_same(*pair) for pair in zip(one, other, strict=True)]


def _reshape(_: relax.Call, shapes: Shapes, made: Shape | None) -> list[Any]:
    if made is None:
        return []
    whole, new = (_product(sizes) for sizes in (shapes[0], made))
    return [_same(whole, new), *(_at_least(size, 0) for size in made)]


def _product(sizes: Shape) -> Any:
    """Multiply the factors in sorted order, so that equal factors give equal expressions."""
    factors = sorted(sizes, key=lambda size: (static(size) is None, str(size)))
    return math.prod(factors, start=tirx.const(1, "int64"))


def _broadcast_to(_: relax.Call, shapes: Shapes, made: Shape | None) -> list[Any]:
    target = made or []
    pairs = zip(shapes[0], target[len(target) - len(shapes[0]) :], strict=True) if target else ()
    # Upstream's loop broadcasts an axis only if its size is known to be 1 at compile time.
    fits = [_same(*pair) for pair in pairs if static(pair[0]) != 1]
    return [*fits, *(_at_least(size, 0) for size in target)]


def _concat(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    axis = int(call.attrs.axis or 0) % len(shapes[0])
    first, *others = [[*shape[:axis], *shape[axis + 1 :]] for shape in shapes]
    return [condition for other in others for condition in _equal(first, other)]


def _convolution(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    (data, weights), attrs = shapes, call.attrs
    wanted = weights[str(attrs.kernel_layout).index("I")]
    if not call.op.name.endswith("_transpose"):
        wanted = wanted * int(attrs.groups)
    return [_same(data[str(attrs.data_layout).index("C")], wanted)]


def _pad(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    """Require more elements than the width for a reflection, and one for edge and wrap."""
    widths, mode = list(map(int, call.attrs.pad_width)), str(call.attrs.pad_mode)
    conditions = []
    for size, before, after in zip(shapes[0], widths[::2], widths[1::2], strict=True):
        if before or after:
            least = {"constant": 0, "reflect": max(before, after, 0) + 1}.get(mode, 1)
            conditions.append(_at_least(size, least - min(before, 0) - min(after, 0)))
    return conditions


def _squeeze(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    axes = call.attrs.axis
    return [] if axes is None else [_same(shapes[0][int(axis)], 1) for axis in axes]


def _resize(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    layout = str(call.attrs.layout)
    sizes = [size for size, axis in zip(shapes[0], layout, strict=True) if axis in "DHW"]
    return [_at_least(size, 1) for size in sizes]


def _attention(_: relax.Call, shapes: Shapes, __: Shape | None) -> list[Any]:
    queries, keys, values, *bias = shapes
    conditions = _equal([queries[0], *queries[2:]], [keys[0], *keys[2:]])
    conditions += _equal(keys[:3], values[:3])
    scores = [queries[0], queries[2], queries[1], keys[1]]
    pairs = [pair for one in bias for pair in zip(one, scores, strict=True)]
    return conditions + [_same(*pair) for pair in pairs if static(pair[0]) != 1]


def _einsum(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    operands = str(call.attrs.subscripts).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, Any] = {}
    conditions = []
    for labels, shape in zip(operands, shapes, strict=True):
        first, dots, last = labels.partition("...")
        batch = len(shape) - len(first) - len(last)
        # Axes that the ellipsis stands for are counted from the last.
        between = [f"-{batch - k}" for k in range(batch)] if dots else []
        for label, size in zip([*first, *between, *last], shape, strict=True):
            if static(size) != 1:
                conditions.append(_same(sizes.setdefault(label, size), size))
    return conditions


# Operators that index


def _take(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    """Require an element to take; upstream clips or wraps indices even into an empty axis."""
    by_itself = str(call.attrs.mode) in ("clip", "wrap")
    return [_at_least(shapes[0][int(call.attrs.axis or 0)], 1)] if by_itself else []


def _elements(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    """Require that indices fit the data on the other axes, and that updates have their shape."""
    of, by, *new = shapes
    axis = int(call.attrs.axis) % len(of)
    fits = [_at_least(of[k], by[k]) for k in range(len(of)) if k != axis]
    return fits + [condition for one in new for condition in _equal(by, one)]


def _gather_nd(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    batch = int(call.attrs.batch_dims)
    return _equal(shapes[1][:batch], shapes[0][:batch])


def _scatter_nd(_: relax.Call, shapes: Shapes, __: Shape | None) -> list[Any]:
    of, by, new = shapes
    return _equal([*by[:-1], *of[int(by[-1]) :]], new)


#: For each operator, a function of the call, its tensors' shapes, and its result's shape if known.
CONDITIONS: dict[str, Callable[[relax.Call, Shapes, Shape | None], list[Any]]] = {
    "relax.reshape": _reshape,
    "relax.broadcast_to": _broadcast_to,
    "relax.strided_slice": lambda _, __, ___: [],  # checked by `Checker.sliced`
    "relax.concat": _concat,
    "relax.matmul": lambda _, shapes, __: [
        _same(shapes[0][-1], shapes[1][max(len(shapes[1]) - 2, 0)])
    ],
    **{
        f"relax.nn.conv{rank}d{kind}": _convolution
        for rank in (1, 2, 3)
        for kind in ("", "_transpose")
    },
    "relax.nn.pad": _pad,
    "relax.topk": lambda call, shapes, _: [
        _at_least(shapes[0][int(call.attrs.axis)], int(call.attrs.k))
    ],
    "relax.squeeze": _squeeze,
    "relax.image.resize2d": _resize,
    "relax.image.resize3d": _resize,
    "relax.nn.attention": _attention,
    "relax.nn.attention_bias": _attention,
    "relax.einsum": _einsum,
    "relax.take": _take,
    "relax.gather_elements": _elements,
    "relax.scatter_elements": _elements,
    "relax.gather_nd": _gather_nd,
    "relax.scatter_nd": _scatter_nd,
}
