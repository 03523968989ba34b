"""PyTorch's dtypes and shapes for what converters return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tvm import relax, sym, tirx
from tvm.relax import op

from ..indices.loops import static
from .arithmetic import converted
from .pytorch_converters import dtype_of, refused
from .pytorch_sizes import bounded, open_sizes, size_of

__all__ = ["checked", "without_importer"]

ByNode = Callable[[Any, Any], relax.Expr]
_HALF = ("float16", "bfloat16")
# Operators that do not compute, so that they need no float32.
_MOVES = {
    *("alias.default", "cat.default", "clone.default", "expand.default", "getitem"),
    *("permute.default", "select.int", "slice.Tensor", "unsqueeze.default", "view.default"),
    "_to_copy.default",
}
# Upstream's converters return only the first of the results, or zeros for the others.
_FIRST_ONLY = {
    *("adaptive_max_pool2d.default", "adaptive_max_pool3d.default"),
    *("max_pool2d_with_indices.default", "max_pool3d_with_indices.default"),
    *("native_group_norm.default", "native_layer_norm.default"),
}


def checked(
    converters: Mapping[str, ByNode], importer: Any, bounds: Mapping[str, tuple[int, int]]
) -> dict[str, ByNode]:
    """Return all converters, upstream's too, with a check of the dtype and the shape of results.

    Operators of float16 and bfloat16 compute in float32 and round the result, as PyTorch's do on a
    CPU.
    """
    upstream = importer.convert_map
    others = {kind: partial(without_importer, convert) for kind, convert in upstream.items()}
    whole: dict[str, ByNode] = {**others, **converters}

    def bound(convert: ByNode) -> ByNode:
        # In the branches of torch.cond, upstream passes the node alone.
        def call(node: Any, _: Any = None) -> relax.Expr:
            return _checked(convert, node, importer, bounds)

        return call

    return {kind: bound(convert) for kind, convert in whole.items()}


def without_importer(convert: Callable[[Any], relax.Expr], node: Any, _: Any) -> relax.Expr:
    """Call a converter of upstream's table, which gets only the node."""
    return convert(node)


def _in_float32(convert: ByNode, node: Any, importer: Any) -> relax.Expr:
    kept, value, bb = dict(importer.env), node.meta["val"], importer.block_builder
    values = value if isinstance(value, (tuple, list)) else [value]
    for source in node.all_input_nodes:
        if dtype_of(source.meta.get("val")) in _HALF:
            importer.env[source] = bb.emit(op.astype(kept[source], "float32"))
    try:
        node.meta["val"] = (
            type(value)(v.float() for v in values) if values is value else value.float()
        )
        made = convert(node, importer)
        if not isinstance(made.ty, relax.TupleType):
            return bb.emit(converted(bb, made, dtype_of(values[0])))
        fields = zip(made.ty.fields, values, strict=False)
        parts = [
            converted(bb, bb.emit(made[n]), dtype_of(one)) for n, (_, one) in enumerate(fields)
        ]
        return bb.emit(relax.Tuple(parts))
    finally:
        node.meta["val"] = value
        importer.env.update(kept)


def _checked(
    convert: ByNode, node: Any, importer: Any, bounds: Mapping[str, tuple[int, int]]
) -> relax.Expr:
    if node.target.__name__ in _FIRST_ONLY and any(u.args[1] and u.users for u in node.users):
        what = f"the results of {node.target._opname} after the first, such as indices"
        raise refused(node, what, "use the first result only")
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    if dtype_of(first) in _HALF and node.target.__name__ not in _MOVES:
        made = _in_float32(convert, node, importer)
    else:
        made = convert(node, importer)
    if isinstance(made, relax.Call):  # some converters of upstream do not emit it
        made = importer.block_builder.emit(made)
    found = getattr(made, "ty", None)
    found = found.fields[0] if isinstance(found, relax.TupleType) and len(found.fields) else found
    if not hasattr(first, "shape") or not isinstance(found, relax.TensorType):
        return made
    shape = found.shape.values if isinstance(found.shape, relax.ShapeExpr) else first.shape
    sizes = [static(size) for size in shape]
    same = len(sizes) == len(first.shape) and all(
        size == other
        for size, other in zip(sizes, first.shape, strict=True)
        if size is not None and isinstance(other, int)
    )
    if str(found.dtype) != dtype_of(first) or not same:
        what = f"TVM computes {found}, but PyTorch {dtype_of(first)} of {tuple(first.shape)}"
        raise refused(node, what, "use other operators or dtypes")
    if not isinstance(made.ty, relax.TensorType) or None not in sizes:
        return made
    return _of_shape(made, first.shape, node, importer, bounds)


def _of_shape(
    made: relax.Var,
    stated: Sequence[Any],
    node: Any,
    importer: Any,
    bounds: Mapping[str, tuple[int, int]],
) -> relax.Var:
    """Reshape a result to the shape that PyTorch states, if TVM's is the same inside the bounds.

    ``min(n, 512)`` is n if the export says so. Otherwise TVM would not know that it can be added to
    a tensor of n numbers. When the model runs, the reshape is checked.
    """
    shape, plain = made.ty.shape, sym.Analyzer()
    if not isinstance(shape, relax.ShapeExpr):
        return made
    if all(isinstance(size, (tirx.Var, tirx.IntImm)) for size in shape.values):
        return made
    known = open_sizes(node, importer)
    inside = bounded(known, bounds)
    sizes = [size_of(size, known) for size in stated]
    pairs = list(zip(shape.values, sizes, strict=True))
    if any(size is None or not inside.can_prove_equal(one, size) for one, size in pairs):
        return made
    if all(plain.can_prove_equal(one, size) for one, size in pairs):
        return made
    return importer.block_builder.emit(op.reshape(made, sizes))
