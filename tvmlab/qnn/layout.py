"""Layout inference of quantized operators for the pass `ConvertLayout`.

A layout decision names the axes of the unconverted tensor ``A``, ``B``, ``C``, ... and lists them
in their current order: an image in NCHW that became NHWC has the decision ``ACDB``. The function of
an operator returns the decisions for its operands and its result, and its new attributes.
`ConvertLayout` takes layouts for convolutions (``{"relax.qnn.conv2d": ["NHWC", "OHWI"]}``); all
other operators follow their operands. Operands of unlisted operators return to their first order.
The counterpart in TVM is `InferLayoutConv2d` (src/relax/op/nn/convolution.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ..ir import dialect

Map = Mapping[Any, Any]
Layout = Callable[[relax.Call, Map, Map], Any]
"""A function of a call, the desired layouts and the layouts decided so far."""
_AXES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_layout = tvm_ffi.get_global_func("s_tir.SLayout")


def _decision(layout: str) -> Any:
    made = _layout(layout, "int64")
    return tvm.ir.make_node("relax.transform.LayoutDecision", layout=made, is_unknown_dim=False)


def _first(ty: ir.Type) -> str:
    """Return the initial layout of a tensor of a type."""
    return _AXES[: max(int(ty.ndim), 0)]


def _found(expr: relax.Expr, found: Map) -> str:
    """Return the current layout of a tensor as a permutation of its axes."""
    decision: Any = found.get(expr) if isinstance(expr, relax.Var) else None
    first = _first(expr.ty)
    # A decision that splits axes, for vectorization, is ignored.
    layout = str(decision.layout.name) if hasattr(decision, "layout") else ""
    return layout if sorted(layout) == sorted(first) else first


def _like(layout: str, old: str, new: str) -> str:
    """Permute the letters of a layout as `new` permutes those of `old`."""
    return "".join(layout[old.index(letter)] for letter in new)


def _answer(inputs: Sequence[Any], output: str, call: relax.Call, changed: dict[str, Any]) -> Any:
    """Return the layouts of the operands and the result; other operands keep their layouts."""
    rest = [_first(argument.ty) for argument in call.args[len(inputs) :]]
    given = [
        [_decision(layout) for layout in one] if isinstance(one, list) else _decision(one)
        for one in (*inputs, *rest)
    ]
    attributes = tvm.ir.make_node("ir.DictAttrs", **{**dialect.attributes(call), **changed})
    return tvm.ir.make_node(
        "relax.transform.InferLayoutOutput",
        input_layouts=given,
        output_layouts=[_decision(output)],
        new_args={},
        new_attrs=attributes,
    )


def convolution(call: relax.Call, desired: Map, found: Map) -> Any:
    """Use the desired layouts if there are any; otherwise follow the data."""
    a = dialect.attributes(call)
    old, kernel = a["data_layout"], a["kernel_layout"]
    out = a["out_layout"] or old
    if call.op.name in desired:
        data, weight, *rest = (str(layout) for layout in desired[call.op.name])
        made = rest[0] if rest else data
    else:
        order = _found(call.args[0], found)
        data, weight, made = _like(old, "ABCD", order), kernel, _like(out, "ABCD", order)
    return _answer(
        [_like("ABCD", old, data), _like("ABCD", kernel, weight)],
        _like("ABCD", out, made),
        call,
        {"data_layout": data, "kernel_layout": weight, "out_layout": made},
    )


def pooling(call: relax.Call, _: Map, found: Map) -> Any:
    """Follow the data."""
    a, order = dialect.attributes(call), _found(call.args[0], found)
    layout, out = a["layout"], a["out_layout"] or a["layout"]
    changed = {"layout": _like(layout, "ABCD", order), "out_layout": _like(out, "ABCD", order)}
    return _answer([order], order, call, changed)


def elementwise(call: relax.Call, _: Map, found: Map) -> Any:
    """Follow the data, and move the axis of the channels with it."""
    a, order = dialect.attributes(call), _found(call.args[0], found)
    changed = {"axis": _axis(a["axis"], order)} if "axis" in a else {}
    return _answer([order], order, call, changed)


def binary(call: relax.Call, _: Map, found: Map) -> Any:
    """Follow the converted side, unless the other side has fewer axes and is broadcast."""
    a, sides = dialect.attributes(call), call.args[:2]
    orders = [_found(side, found) for side in sides]
    first = _AXES[: max(map(len, orders))]
    order = next((o for o in orders if len(o) == len(first) and o != first), first)
    if any(len(own) not in (0, len(first)) for own in orders):
        order = first
    made = [order if len(own) == len(order) else _AXES[: len(own)] for own in orders]
    changed = {
        f"{side}_axis": _axis(a[f"{side}_axis"], own)
        for side, own in zip(("lhs", "rhs"), made, strict=True)
    }
    return _answer(made, order, call, changed)


def concatenate(call: relax.Call, _: Map, found: Map) -> Any:
    """Follow the first converted tensor."""
    tensors, axis = call.args[0], dialect.attributes(call)["axis"]
    firsts = [_first(ty) for ty in tensors.ty.fields]
    fields = tensors.fields if isinstance(tensors, relax.Tuple) else ()
    orders = [_found(field, found) for field in fields]
    order = next((o for o in orders if o != firsts[0]), firsts[0])
    rest = [[_first(ty) for ty in operand.ty.fields] for operand in call.args[1:3]]
    changed = {"axis": _axis(axis, order)}
    return _answer([[order] * len(firsts), *rest], order, call, changed)


def _axis(axis: int, order: str) -> int:
    return order.index(_AXES[axis % len(order)]) if order else axis
