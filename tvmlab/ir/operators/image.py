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
from ..table import arguments, attributes, native, stands_for, values_of
from ..types import result, view
from ..windows import arrange, by_axis
from .common import Values, Written, ints, need_dims

_RESIZE2D = (
    "size:ints=None roi:any=None layout:str=NCHW method:str=linear "
    "coordinate_transformation_mode:str=half_pixel rounding_method:str=round "
    "cubic_alpha:float=-0.5 cubic_exclude:int=0 extrapolation_value:float=0.0 out_dtype:str="
)


def _resize2d(data: relax.Expr, size: list[int] | None, roi: Any, **a: Any) -> relax.Expr:
    if not size:
        raise RelayError("image.resize2d has no size", where="image.resize2d, attribute size")
    region = tuple(float(edge) for edge in roi) if roi else None
    # An empty rounding method is one of Relax's, not its default.
    given = arguments(a) | {"rounding_method": a["rounding_method"]}
    return op.image.resize2d(data, relax.ShapeExpr(size), region, **given)


def _resize2d_back(call: relax.Call) -> Written | None:
    sides = ints(call.args[1])
    if sides is None:
        return None
    roi = [float(edge) for edge in call.attrs.roi]
    return [call.args[0]], values_of(call, attributes(_RESIZE2D), size=sides, roi=roi)


native(
    "image.resize2d",
    "data",
    _RESIZE2D,
    to_relax=_resize2d,
    from_relax=_resize2d_back,
    defaults={"roi": [0.0] * 4, "rounding_method": ""},
)


def _upsampled(ty: ir.Type, a: Values) -> list[Any] | None:
    data = view("nn.upsampling", "data", ty)
    sizes = by_axis(data, a["layout"], "NCHW")
    for axis, name in (("H", "scale_h"), ("W", "scale_w")):
        size = sizes[axis]
        sizes[axis] = round(size * a[name]) if isinstance(size, int) else None
    return arrange(data, sizes, a["layout"])


def _upsampling_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    return result(_upsampled(types[0], a), view("nn.upsampling", "data", types[0]).dtype, 4)


@stands_for(
    "nn.upsampling",
    "data",
    "scale_h:float scale_w:float layout:str=NCHW method:str=nearest_neighbor "
    "align_corners:bool=False",
    infer=_upsampling_type,
    defaults={"scale_h": 1, "scale_w": 1},
)
def _upsampling(data: relax.Expr, **a: Any) -> relax.Expr:
    shape = _upsampled(data.ty, a)
    if shape is None:
        raise RelayError("the data's height and width are not known", where="nn.upsampling")
    return op.image.resize2d(
        data,
        relax.ShapeExpr([shape[a["layout"].index(axis)] for axis in "HW"]),
        layout=a["layout"],
        # Relay calls them bilinear and bicubic, Relax linear and cubic.
        method=a["method"].removeprefix("bi"),
        coordinate_transformation_mode="align_corners" if a["align_corners"] else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,
    )


def _subpixel(name: str, into_space: bool, signature: str) -> None:
    @stands_for(name, "data", "block_size:int=1 layout:str=NCHW mode:str=DCR", signature=signature)
    def _(data: relax.Expr, block_size: int, layout: str, mode: str) -> relax.Expr:
        block = block_size
        if block < 1 or mode not in ("DCR", "CDR"):
            raise RelayError(
                f'block_size is {block} and mode "{mode}": a positive number and DCR or CDR are '
                "needed",
                where=name,
            )
        need_dims(data.ty, f"{name} data")
        known = view(name, "data", data.ty)
        sizes = by_axis(known, layout, "NCHW")
        for axis in "C" if into_space else "HW":
            factor = block * block if into_space else block
            if isinstance(sizes[axis], int) and sizes[axis] % factor:
                raise RelayError(
                    f"{sizes[axis]} along {axis} is no multiple of {factor}", where=known.where
                )
        n, c, h, w = (sizes[axis] for axis in "NCHW")
        first = op.permute_dims(data, [layout.index(axis) for axis in "NCHW"])
        if into_space:
            depth_first = mode == "DCR"
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


_subpixel("nn.depth_to_space", True, "data block_size layout mode")
_subpixel("nn.space_to_depth", False, "data block_size layout")
