"""Rows for convolutions, in one, two and three dimensions, and transposed ones.

Relax knows neither ``channels`` nor ``kernel_size``: the weight's shape says them. They are
checked against it on reading and taken from it on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ..graph import known
from ..table import Attribute, Operator, add
from ..types import result, view
from ..windows import convolution, depthwise, transposed
from .checks import relay_errors
from .common import Operands, Values, Written, two_forms


def _attributes(spatial: str) -> tuple[Attribute, ...]:
    n = len(spatial)
    return (
        Attribute("strides", "ints", [1] * n),
        # Relay's one-dimensional convolution has both sides in its default.
        Attribute("padding", "ints", [0] * max(n, 2)),
        Attribute("dilation", "ints", [1] * n),
        Attribute("groups", "int", 1),
        Attribute("channels", "int", None),
        Attribute("kernel_size", "ints", None),
        Attribute("data_layout", "str", "NC" + spatial),
        Attribute("kernel_layout", "str", "OI" + spatial),
        Attribute("out_layout", "str", ""),
        Attribute("out_dtype", "str", ""),
    )


def _transpose_attributes(spatial: str) -> tuple[Attribute, ...]:
    n = len(spatial)
    return (
        Attribute("channels", "int", None),
        Attribute("kernel_size", "ints", None),
        Attribute("strides", "ints", [1] * n),
        Attribute("output_padding", "ints", [0] * n),
        Attribute("padding", "ints", [0] * n),
        Attribute("dilation", "ints", [1] * n),
        Attribute("groups", "int", 1),
        Attribute("data_layout", "str", "NC" + spatial),
        Attribute("kernel_layout", "str", "IO" + spatial),
        Attribute("out_layout", "str", ""),
        Attribute("out_dtype", "str", ""),
    )


CONV2D = _attributes("HW")
CONV2D_TRANSPOSE = _transpose_attributes("HW")
TRANSPOSE_SIGNATURE = (
    "strides",
    "padding",
    "dilation",
    "groups",
    "channels",
    "kernel_size",
    "data_layout",
    "kernel_layout",
    "out_layout",
    "output_padding",
    "out_dtype",
)


def _letters(layout: str, spatial: str) -> bool:
    """Say whether a kernel's layout is plain: not split in blocks, such as ``OIHW16o``."""
    return sorted(layout) == sorted("OI" + spatial)


def _types(name: str, operands: Operands) -> tuple[Any, Any]:
    data, weight = operands
    return view(name, "data", data.ty), view(name, "weight", weight.ty)


def _weight(call: relax.Call, spatial: str) -> dict[str, int | None]:
    """Give the weight's sizes that are known numbers, by the letters of its layout."""
    layout, weight = str(call.attrs.kernel_layout), view("", "weight", call.args[1].ty)
    if not _letters(layout, spatial) or weight.shape is None or len(weight.shape) != len(layout):
        return dict.fromkeys("OI" + spatial)
    sizes = dict(zip(layout, weight.shape, strict=True))
    return {axis: size if isinstance(size, int) else None for axis, size in sizes.items()}


def _common(call: relax.Call, spatial: str, channels: int | None) -> Values:
    """Take apart what convolutions and transposed ones have in common."""
    a, sizes = call.attrs, _weight(call, spatial)
    kernel = [sizes[axis] for axis in spatial]
    return {
        "strides": [int(i) for i in a.strides],
        "padding": [int(i) for i in a.padding],
        "dilation": [int(i) for i in a.dilation],
        "groups": int(a.groups),
        "channels": channels,
        "kernel_size": None if None in kernel else kernel,
        "data_layout": str(a.data_layout),
        "kernel_layout": str(a.kernel_layout),
        "out_layout": "" if a.out_layout == a.data_layout else str(a.out_layout),
        "out_dtype": str(a.out_dtype or ""),
    }


def _arguments(a: Values, *more: str) -> Values:
    """Give the arguments of Relax's functions."""
    same = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", *more)
    return {
        **{name: a[name] for name in same},
        "out_layout": a["out_layout"] or None,
        "out_dtype": a["out_dtype"] or None,
    }


def _needs_ours(name: str, spatial: str, operands: Operands, a: Values) -> bool:
    """Check a convolution, and say whether Relax's own would lose or refuse it.

    It would lose ``channels`` and ``kernel_size`` where the weight's shape is not known, and
    refuses a depthwise weight that Relay stores as (channels, multiplier).
    """
    if not _letters(a["kernel_layout"], spatial):
        return False
    data, weight = _types(name, operands)
    if weight.shape is None:
        return a["channels"] is not None or a["kernel_size"] is not None
    if sorted(a["data_layout"]) != sorted("NC" + spatial):
        return False
    if len(weight.shape) != len(a["kernel_layout"]) and not known(operands[0]):
        return False  # wrong, which comes out where types are inferred
    with relay_errors():
        convolution(data, weight, spatial, a)
    sizes = dict(zip(a["kernel_layout"], weight.shape, strict=True))
    channels = data.shape[a["data_layout"].index("C")] if data.shape else None
    return depthwise(channels, sizes["O"], a["groups"]) and sizes["I"] != 1


def _convolution(spatial: str, native: Callable[..., relax.Expr]) -> None:
    name = f"nn.conv{len(spatial)}d"

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data, weight = view(name, "data", types[0]), view(name, "weight", types[1])
        shape, _ = convolution(data, weight, spatial, a)
        return result(shape, a["out_dtype"] or data.dtype, len(spatial) + 2)

    def expand(operands: Operands, a: Values) -> relax.Expr:
        data, weight = operands
        if not _needs_ours(name, spatial, operands, a | {"channels": None, "kernel_size": None}):
            return native(data, weight, **_arguments(a))
        # Relay's depthwise weight, (channels, multiplier), is Relax's (channels * multiplier, 1).
        layout = a["kernel_layout"]
        plain = op.permute_dims(weight, [layout.index(axis) for axis in "OI" + spatial])
        sizes = dict(zip(layout, weight.ty.shape, strict=True))
        shape = [sizes["O"] * sizes["I"], 1, *(sizes[axis] for axis in spatial)]
        attributes = a | {"kernel_layout": "OI" + spatial}
        return native(data, op.reshape(plain, shape), **_arguments(attributes))

    def read(operands: Operands, a: Values) -> relax.Expr | None:
        if _needs_ours(name, spatial, operands, a):
            return None
        return native(*operands, **_arguments(a))

    def write(call: relax.Call) -> Written:
        return list(call.args), _common(call, spatial, _weight(call, spatial)["O"])

    attributes = _attributes(spatial)
    two_forms(name, ("data", "weight"), attributes, f"relax.{name}", read, write, infer, expand)


def _transposed(spatial: str, native: Callable[..., relax.Expr]) -> None:
    name, attributes = f"nn.conv{len(spatial)}d_transpose", _transpose_attributes(spatial)

    def read(operands: Operands, a: Values) -> relax.Expr:
        data, weight = _types(name, operands)
        if _letters(a["kernel_layout"], spatial) and len(a["data_layout"]) == len(spatial) + 2:
            with relay_errors():
                transposed(data, weight, spatial, a)
        return native(*operands, **_arguments(a, "output_padding"))

    def write(call: relax.Call) -> Written:
        out = _weight(call, spatial)["O"]
        channels = None if out is None else out * int(call.attrs.groups)
        found = _common(call, spatial, channels)
        found["output_padding"] = [int(i) for i in call.attrs.output_padding]
        return list(call.args), {attribute.name: found[attribute.name] for attribute in attributes}

    add(
        Operator(
            name,
            f"relax.{name}",
            ("data", "weight"),
            attributes,
            read,
            write,
            ("data", "weight", *TRANSPOSE_SIGNATURE),
        )
    )


_convolution("W", op.nn.conv1d)
_convolution("HW", op.nn.conv2d)
_convolution("DHW", op.nn.conv3d)
_transposed("W", op.nn.conv1d_transpose)
_transposed("HW", op.nn.conv2d_transpose)
_transposed("DHW", op.nn.conv3d_transpose)
