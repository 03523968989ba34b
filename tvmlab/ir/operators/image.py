"""Rows for images: resizing, and moving channels into space and back.

Names, attributes and types are those of src/relay/op/image/resize.cc, src/relay/op/nn/upsampling.cc
and nn.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from ..types import plain, result, view
from ..windows import arrange, by_axis
from .common import Operands, Values, Written

_RESIZE2D = (
    Attribute("size", "ints", None),
    Attribute("roi", "any", None),
    Attribute("layout", "str", "NCHW"),
    Attribute("method", "str", "linear"),
    Attribute("coordinate_transformation_mode", "str", "half_pixel"),
    Attribute("rounding_method", "str", "round"),
    Attribute("cubic_alpha", "float", -0.5),
    Attribute("cubic_exclude", "int", 0),
    Attribute("extrapolation_value", "float", 0.0),
    Attribute("out_dtype", "str", ""),
)


def _read_resize2d(operands: Operands, a: Values) -> relax.Expr:
    if not a["size"]:
        raise RelayError("image.resize2d has no size", where="image.resize2d, attribute size")
    given = {name: value for name, value in a.items() if name not in ("size", "roi", "out_dtype")}
    roi = tuple(float(edge) for edge in a["roi"]) if a["roi"] else None
    size = relax.ShapeExpr([plain(side) for side in a["size"]])
    return op.image.resize2d(operands[0], size, roi, **given, out_dtype=a["out_dtype"] or None)


def _write_resize2d(call: relax.Call) -> Written | None:
    a, size = call.attrs, call.args[1]
    if not isinstance(size, relax.ShapeExpr):
        return None
    sides = [plain(side) for side in size.values]
    if not all(isinstance(side, int) for side in sides):
        return None
    return [call.args[0]], {
        "size": sides,
        "roi": [float(edge) for edge in a.roi],
        "layout": str(a.layout),
        "method": str(a.method),
        "coordinate_transformation_mode": str(a.coordinate_transformation_mode),
        "rounding_method": str(a.rounding_method),
        "cubic_alpha": float(a.cubic_alpha),
        "cubic_exclude": int(a.cubic_exclude),
        "extrapolation_value": float(a.extrapolation_value),
        "out_dtype": str(a.out_dtype or ""),
    }


add(
    Operator(
        "image.resize2d",
        "relax.image.resize2d",
        ("data",),
        _RESIZE2D,
        _read_resize2d,
        _write_resize2d,
        defaults={"roi": [0.0] * 4, "rounding_method": ""},
    )
)


def _upsampled(data: Any, a: Values) -> list[Any] | None:
    sizes = by_axis(data, a["layout"], "NCHW")
    for axis, name in (("H", "scale_h"), ("W", "scale_w")):
        size = sizes[axis]
        sizes[axis] = round(size * a[name]) if isinstance(size, int) else None
    return arrange(data, sizes, a["layout"])


def _upsampling_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data = view("nn.upsampling", "data", types[0])
    return result(_upsampled(data, a), data.dtype, 4)


def _upsampling(operands: Operands, a: Values) -> relax.Expr:
    shape = _upsampled(view("nn.upsampling", "data", operands[0].ty), a)
    if shape is None:
        raise RelayError("the data's height and width are not known", where="nn.upsampling")
    # Relay calls them bilinear and bicubic, Relax linear and cubic.
    method = a["method"].removeprefix("bi")
    return op.image.resize2d(
        operands[0],
        relax.ShapeExpr([shape[a["layout"].index(axis)] for axis in "HW"]),
        layout=a["layout"],
        method=method,
        coordinate_transformation_mode="align_corners" if a["align_corners"] else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,
    )


add_ours(
    "nn.upsampling",
    ("data",),
    (
        Attribute("scale_h", "float"),
        Attribute("scale_w", "float"),
        Attribute("layout", "str", "NCHW"),
        Attribute("method", "str", "nearest_neighbor"),
        Attribute("align_corners", "bool", False),
    ),
    _upsampling_type,
    _upsampling,
    defaults={"scale_h": 1, "scale_w": 1},
)


_SUBPIXEL = (
    Attribute("block_size", "int", 1),
    Attribute("layout", "str", "NCHW"),
    Attribute("mode", "str", "DCR"),
)


def _moved(call: str, into_space: bool, ty: ir.Type, a: Values) -> relax.TensorType:
    data, block = view(call, "data", ty), a["block_size"]
    if block < 1 or a["mode"] not in ("DCR", "CDR"):
        raise RelayError(
            f'block_size is {block} and mode "{a["mode"]}": a positive number and DCR or CDR are '
            "needed",
            where=call,
        )
    sizes = by_axis(data, a["layout"], "NCHW")
    divided = ("C",) if into_space else ("H", "W")
    for axis in "CHW":
        factor, size = block * block if axis == "C" else block, sizes[axis]
        if axis in divided and isinstance(size, int) and size % factor:
            raise RelayError(f"{size} along {axis} is no multiple of {factor}", where=data.where)
        if size is not None:
            sizes[axis] = size // factor if axis in divided else size * factor
    return result(arrange(data, sizes, a["layout"]), data.dtype, 4)


def _subpixel(name: str, into_space: bool, signature: tuple[str, ...]) -> None:
    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        return _moved(name, into_space, types[0], a)

    def expand(operands: Operands, a: Values) -> relax.Expr:
        data, block, layout = operands[0], a["block_size"], a["layout"]
        n, c, h, w = (data.ty.shape[layout.index(axis)] for axis in "NCHW")
        first = op.permute_dims(data, [layout.index(axis) for axis in "NCHW"])
        if into_space:
            depth_first = a["mode"] == "DCR"
            channels = c // (block * block)
            split = [block, block, channels] if depth_first else [channels, block, block]
            parts = op.reshape(first, [n, *split, h, w])
            order = [0, 3, 4, 1, 5, 2] if depth_first else [0, 1, 4, 2, 5, 3]
            shape = [n, channels, h * block, w * block]
        else:
            parts = op.reshape(first, [n, c, h // block, block, w // block, block])
            order = [0, 3, 5, 1, 2, 4]
            shape = [n, c * block * block, h // block, w // block]
        made = op.reshape(op.permute_dims(parts, order), shape)
        return op.permute_dims(made, ["NCHW".index(axis) for axis in layout])

    add_ours(name, ("data",), _SUBPIXEL, infer, expand, signature=signature)


_subpixel("nn.depth_to_space", True, ("data", "block_size", "layout", "mode"))
_subpixel("nn.space_to_depth", False, ("data", "block_size", "layout"))
