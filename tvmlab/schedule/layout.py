"""Convert activations to NHWC and weights to OHWI at compile time, for all convolutions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_op, rewrite_call, wildcard

from ..ir.constants import each_call, fold_constants
from ..support.wording import telling
from .compute import sizes
from .quantized_phases import quantized_phases
from .transposed import by_phases
from .views import as_group_norm, sink_view, transpose_axes
from .volumes import with_channels_last

__all__ = ["channels_last", "convolves"]


def convolves(mod: tvm.ir.IRModule) -> bool:
    """Return whether a module has a two-dimensional convolution, whose layout can be converted."""
    found = []

    def look(expr: Any) -> None:
        found.append(getattr(getattr(expr, "op", None), "name", "") in _CONVOLUTIONS)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    return any(found)


_CONVOLUTIONS = {
    f"relax.{kind}.conv2d{more}" for kind in ("nn", "qnn") for more in ("", "_transpose")
}


@relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _carry_layouts(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
    """Replace operators without layout conversion; drop each dropout whose mask is not used."""
    x = wildcard()
    dropout = TupleGetItemPattern(is_op("relax.nn.dropout")(x), 0)
    func = rewrite_call(dropout, lambda _, found: found[x], func)
    for name, change in _CHANGES.items():
        func = rewrite_call(is_op(name)(x), partial(_changed, change), func)
    return func


def _changed(change: Callable[[relax.Call], relax.Expr], found: relax.Expr, _: Any) -> relax.Expr:
    """Change a call; a variable that is bound to a matching call matches as well."""
    return change(found) if isinstance(found, relax.Call) else found


def _transpose(call: relax.Call) -> relax.Expr:
    axes, rank = call.attrs.axes, call.ty.ndim
    if axes is None or rank < 0 or all(int(axis) >= 0 for axis in axes):
        return call
    return relax.op.permute_dims(call.args[0], [int(axis) % rank for axis in axes])


def _squeeze(call: relax.Call) -> relax.Expr:
    axes, rank = call.attrs.axis, call.args[0].ty.ndim
    if axes is None or rank < 0 or all(int(axis) >= 0 for axis in axes):
        return call
    return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in axes])


def _stack(call: relax.Call) -> relax.Expr:
    fields = call.args[0]
    if not isinstance(fields, relax.Tuple) or call.ty.ndim < 0:
        return call
    axis = int(call.attrs.axis or 0) % call.ty.ndim
    return relax.op.concat([relax.op.expand_dims(one, axis) for one in fields.fields], axis)


_CHANGES: dict[str, Callable[[relax.Call], relax.Expr]] = {
    "relax.permute_dims": _transpose,
    "relax.squeeze": _squeeze,
    "relax.stack": _stack,
}


@relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _split_by_slices(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
    """Replace each part of a split by a slice, which `FuseOps` can fuse with what reads it."""

    @relax.expr_functor.mutator
    class Changed(relax.PyExprMutator):
        def visit_tuple_getitem_(self, part: relax.TupleGetItem) -> relax.Expr:
            part = self.visit_expr_post_order(part)
            parts = part.tuple_value
            parts = self.lookup_binding(parts) if isinstance(parts, relax.Var) else parts
            if getattr(getattr(parts, "op", None), "name", "") != "relax.split":
                return part
            x, axis = parts.args[0], int(parts.attrs.axis) % max(1, parts.args[0].ty.ndim)
            parts = [sizes(one.shape)[axis] for one in parts.ty.fields]
            if not all(isinstance(size, int) for size in parts) or len(parts) > _PARTS:
                return part
            start = sum(parts[: part.index])
            return relax.op.strided_slice(x, [axis], [start], [start + parts[part.index]])

    return Changed().visit_expr(func)


# Parts of a split that become slices; each slice that is not fused is a function to compile.
_PARTS = 4
_DESIRED = {name: ["NHWC", "OHWI"] for name in ("relax.nn.conv2d", "relax.qnn.conv2d")}
_DESIRED |= {f"relax.{kind}.conv2d_transpose": ["NHWC", "IOHW"] for kind in ("nn", "qnn")}
_IMAGE = 4
_COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
_BINARY = (*_COMMUTATIVE, "subtract", "divide")
_CONSTANT = tvm.ir.GenericConst


@relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _sink_transposes(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
    """Move transposes behind padding and clips by a scalar."""
    # `ConvertLayout` has no layout inference for ``pad`` and ``clip``, nor for ``maximum`` and
    # ``minimum`` with a scalar, which ONNX's Clip becomes: it leaves two transposes around each.
    x, low, high = wildcard(), wildcard(), wildcard()
    inner = is_op("relax.permute_dims")(x)
    limits = [
        is_op("relax.clip")(inner, low, high),
        *(is_op(f"relax.{name}")(inner, low) for name in ("maximum", "minimum")),
    ]

    def sink(expr: relax.Call, found: Any) -> relax.Expr:
        axes, others = found[inner].attrs.axes, expr.args[1:]
        if any(getattr(other.ty, "ndim", 0) != 0 for other in others):
            return expr
        return relax.op.permute_dims(relax.Call(expr.op, [found[x], *others], expr.attrs), axes)

    def sink_pad(expr: relax.Call, found: Any) -> relax.Expr:
        widths, axes = list(expr.attrs.pad_width), transpose_axes(found[inner])
        pairs = dict(zip(axes, zip(widths[::2], widths[1::2], strict=True), strict=True))
        moved = [width for axis in sorted(axes) for width in pairs[axis]]
        mode, value = expr.attrs.pad_mode, expr.attrs.pad_value
        padded = relax.op.nn.pad(found[x], moved, mode, value)
        return relax.op.permute_dims(padded, axes)

    func = rewrite_call(is_op("relax.nn.pad")(inner), sink_pad, func)
    for limit in (*limits, *limits):  # a maximum of a minimum, and the reverse
        func = rewrite_call(limit, sink, func)
    return func


def _full_rank(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Expand a constant that is broadcast to images to four axes, as the right operand."""
    # `ConvertLayout` propagates no layout through an operator whose operands differ in rank,
    # such as a bias of shape (c, 1, 1) in NCHW, nor from its right operand.
    name = getattr(call.op, "name", "").removeprefix("relax.")
    if name not in _BINARY:
        return call
    x, value = call.args
    if isinstance(x, _CONSTANT) and name in _COMMUTATIVE:
        x, value = value, x
    rank = int(getattr(x.ty, "ndim", -1))
    if isinstance(x, _CONSTANT) or not isinstance(value, _CONSTANT) or rank != _IMAGE:
        return call
    if not 0 < value.ty.ndim <= rank:
        return call
    old = value.value.numpy()
    wide = relax.const(old.reshape([1] * (rank - old.ndim) + [*old.shape]), value.ty.dtype)
    return relax.Call(call.op, [x, wide], call.attrs)


def _transposed(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Compute a transposed convolution by phases, or in NCHW: TVM has loops for no other layout."""
    if getattr(call.op, "name", "") != "relax.nn.conv2d_transpose":
        return call
    attrs, (data, weight) = call.attrs, call.args
    if str(attrs.data_layout) != "NHWC" or str(attrs.out_layout) not in ("NHWC", ""):
        return call
    phases = by_phases(call, builder)
    if phases is not None:
        return phases
    made = relax.op.nn.conv2d_transpose(
        builder.emit(relax.op.permute_dims(data, [0, 3, 1, 2])),
        weight,
        attrs.strides,
        attrs.padding,
        attrs.output_padding,
        attrs.dilation,
        int(attrs.groups),
        data_layout="NCHW",
        kernel_layout=str(attrs.kernel_layout),
        out_dtype=attrs.out_dtype,
    )
    return relax.op.permute_dims(builder.emit(made), [0, 2, 3, 1])


@tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
def _convert_layout(mod: tvm.ir.IRModule, ctx: Any) -> tvm.ir.IRModule:
    """Convert the layout, or warn if upstream's pass fails: it raises at some operators."""
    if not convolves(mod):
        return mod
    mod = _carry_layouts(mod)
    try:
        return relax.transform.ConvertLayout(_DESIRED)(mod)
    except Exception as error:  # TVM's checks raise errors of several classes
        warnings.warn(
            f"convolutions stay in their layout, and slow: ConvertLayout says {telling(error)}",
            stacklevel=2,
        )
        return mod


def channels_last() -> tvm.transform.Pass:
    """Return the pass that puts channels last in data and weights, for all convolutions."""
    return tvm.transform.Sequential(
        [
            each_call(with_channels_last),
            each_call(as_group_norm),
            each_call(sink_view),
            each_call(_full_rank),
            _convert_layout,
            each_call(_transposed),
            relax.transform.CanonicalizeBindings(),
            fold_constants(),
            relax.transform.CanonicalizeBindings(),  # so that convolutions see constants
            quantized_phases(),
            _sink_transposes,
            each_call(sink_view),
            _split_by_slices,
            relax.transform.DeadCodeElimination(),
        ]
    )
