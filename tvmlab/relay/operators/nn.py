"""Rows for networks: convolutions, products, normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ..table import Attribute, Operator, add, add_ours

Written = tuple[Sequence[relax.Expr], dict[str, Any]]


def _conv2d(operands: Sequence[relax.Expr], a: dict[str, Any]) -> relax.Expr:
    return op.nn.conv2d(
        *operands,
        strides=a["strides"],
        padding=a["padding"],
        dilation=a["dilation"],
        groups=a["groups"],
        data_layout=a["data_layout"],
        kernel_layout=a["kernel_layout"],
        out_layout=a["out_layout"] or None,
        out_dtype=a["out_dtype"] or None,
    )


def _conv2d_back(call: relax.Call) -> Written:
    a = call.attrs
    layout, shape = str(a.kernel_layout), call.args[1].ty.shape
    sizes = dict(zip(layout, shape, strict=True)) if isinstance(shape, relax.ShapeExpr) else {}
    known = {axis: int(size) for axis, size in sizes.items() if isinstance(size, ir.PrimExpr)}
    return list(call.args), {
        "strides": [int(i) for i in a.strides],
        "padding": [int(i) for i in a.padding],
        "dilation": [int(i) for i in a.dilation],
        "groups": int(a.groups),
        "channels": known.get("O"),
        "kernel_size": [known[axis] for axis in "HW"] if known else None,
        "data_layout": str(a.data_layout),
        "kernel_layout": layout,
        "out_layout": "" if a.out_layout == a.data_layout else str(a.out_layout),
        "out_dtype": str(a.out_dtype or ""),
    }


_CONV2D = (
    Attribute("strides", "ints", [1, 1]),
    Attribute("padding", "ints", [0, 0]),
    Attribute("dilation", "ints", [1, 1]),
    Attribute("groups", "int", 1),
    Attribute("channels", "int", None),
    Attribute("kernel_size", "ints", None),
    Attribute("data_layout", "str", "NCHW"),
    Attribute("kernel_layout", "str", "OIHW"),
    Attribute("out_layout", "str", ""),
    Attribute("out_dtype", "str", ""),
)
add(Operator("nn.conv2d", "relax.nn.conv2d", ("data", "weight"), _CONV2D, _conv2d, _conv2d_back))


def _bias_add_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    return types[0]


def _bias_add(operands: Sequence[relax.Expr], a: dict[str, Any]) -> relax.Expr:
    data, bias = operands
    axis = a["axis"] % data.ty.ndim
    if axis == data.ty.ndim - 1:
        return op.add(data, bias)
    return op.add(data, op.expand_dims(bias, list(range(1, data.ty.ndim - axis))))


add_ours("nn.bias_add", ("data", "bias"), (Attribute("axis", "int", 1),), _bias_add_type, _bias_add)
