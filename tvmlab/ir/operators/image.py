"""Rows for windows over images: convolutions, pooling, resizing, channels moved into space.

Names, attributes and types are those of src/relay/op/nn/{convolution,pooling,upsampling,nn}.cc and
src/relay/op/image/resize.cc (TVM 0.18). Relax knows neither ``channels`` nor ``kernel_size`` of a
convolution, which the weight's shape implies. They are checked against it on reading and taken from
it on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..graph import has_type
from ..table import arguments, native, stands_for
from ..types import result, view
from ..windows import arrange, by_axis, convolution, depthwise, padding, pooling, transposed
from .common import Values, ints, need_dims

_IMPLIED = ("channels", "kernel_size")


def _each(value: int, count: int) -> str:
    return str([value] * count).replace(" ", "")


def _split_in_parts(layout: str, spatial: str) -> bool:
    """Return whether a kernel's layout has axes in parts, such as ``OIHW16o``."""
    return sorted(layout) != sorted("OI" + spatial)


def _implied(call: relax.Call, spatial: str, times: int = 1) -> Values:
    """Return ``channels`` and ``kernel_size`` as far as the weight's type tells them."""
    layout, weight = str(call.attrs.kernel_layout), view("", "weight", call.args[1].ty)
    if _split_in_parts(layout, spatial) or weight.shape is None or weight.ndim != len(layout):
        return dict.fromkeys(_IMPLIED)
    sizes = dict(zip(layout, weight.shape, strict=True))
    kernel = [sizes[axis] for axis in spatial]
    static = all(isinstance(size, int) for size in kernel)
    channels = sizes["O"] * times if isinstance(sizes["O"], int) else None
    return {"channels": channels, "kernel_size": kernel if static else None}


def _convolution(spatial: str) -> None:
    n, name = len(spatial), f"nn.conv{len(spatial)}d"
    make = getattr(op.nn, name[3:])

    def needs_ours(data: relax.Expr, kernel: relax.Expr, a: Values) -> bool:
        """Check a convolution, and return whether Relax's own would lose or refuse it.

        It would lose ``channels`` and ``kernel_size`` where the weight's shape is not known, and
        refuses a depthwise weight that Relay stores as (channels, multiplier).
        """
        if _split_in_parts(a["kernel_layout"], spatial):
            return False
        x, w = view(name, "data", data.ty), view(name, "weight", kernel.ty)
        if w.shape is None:
            return a["channels"] is not None or a["kernel_size"] is not None
        if sorted(a["data_layout"]) != sorted("NC" + spatial):
            return False
        if w.ndim != len(a["kernel_layout"]) and not has_type(data):
            return False  # wrong, which comes out where types are inferred
        convolution(x, w, spatial, a)
        sizes = dict(zip(a["kernel_layout"], w.shape, strict=True))
        channels = x.shape[a["data_layout"].index("C")] if x.shape else None
        return depthwise(channels, sizes["O"], a["groups"]) and sizes["I"] != 1

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data, weight = view(name, "data", types[0]), view(name, "weight", types[1])
        shape, _ = convolution(data, weight, spatial, a)
        return result(shape, a["out_dtype"] or data.dtype, n + 2)

    def expand(data: relax.Expr, weight: relax.Expr, **a: Any) -> relax.Expr:
        if needs_ours(data, weight, a | dict.fromkeys(_IMPLIED)):
            # Relay's depthwise weight, (channels, multiplier), is (channels * multiplier, 1) here.
            layout = a["kernel_layout"]
            sizes = dict(zip(layout, weight.ty.shape, strict=True))
            shape = [sizes["O"] * sizes["I"], 1, *(sizes[axis] for axis in spatial)]
            plain = op.permute_dims(weight, [layout.index(axis) for axis in "OI" + spatial])
            weight, a["kernel_layout"] = op.reshape(plain, shape), "OI" + spatial
        return make(data, weight, **arguments(a, _IMPLIED))

    def to_relax(data: relax.Expr, weight: relax.Expr, **a: Any) -> relax.Expr | None:
        ours = needs_ours(data, weight, a)
        return None if ours else make(data, weight, **arguments(a, _IMPLIED))

    native(
        name,
        "data weight",
        # The default padding of Relay's one-dimensional convolution has both sides.
        f"strides:ints={_each(1, n)} padding:ints={_each(0, max(n, 2))} "
        f"dilation:ints={_each(1, n)} groups:int=1 channels:int=None kernel_size:ints=None "
        f"data_layout:str=NC{spatial} kernel_layout:str=OI{spatial} out_layout:str= out_dtype:str=",
        to_relax=to_relax,
        known=lambda call: _implied(call, spatial),
        expand=expand,
        infer=infer,
    )


def _transposed(spatial: str) -> None:
    n, name = len(spatial), f"nn.conv{len(spatial)}d_transpose"

    def to_relax(data: relax.Expr, weight: relax.Expr, **a: Any) -> relax.Expr:
        whole = not _split_in_parts(a["kernel_layout"], spatial)
        if whole and len(a["data_layout"]) == n + 2:
            transposed(view(name, "data", data.ty), view(name, "weight", weight.ty), spatial, a)
        return getattr(op.nn, name[3:])(data, weight, **arguments(a, _IMPLIED))

    native(
        name,
        "data weight",
        f"channels:int=None kernel_size:ints=None strides:ints={_each(1, n)} "
        f"output_padding:ints={_each(0, n)} padding:ints={_each(0, n)} "
        f"dilation:ints={_each(1, n)} groups:int=1 "
        f"data_layout:str=NC{spatial} kernel_layout:str=IO{spatial} out_layout:str= out_dtype:str=",
        to_relax=to_relax,
        known=lambda call: _implied(call, spatial, times=int(call.attrs.groups)),
        signature="data weight strides padding dilation groups channels kernel_size data_layout "
        "kernel_layout out_layout output_padding out_dtype",
    )


def _pool(spatial: str, kind: str) -> None:
    n, name = len(spatial), f"nn.{kind}_pool{len(spatial)}d"

    def to_relax(data: relax.Expr, **a: Any) -> relax.Expr:
        for attribute in ("pool_size", "strides", "dilation"):
            if min(a[attribute], default=1) < 1:
                what = f"{attribute} of {name} is {a[attribute]}"
                raise RelayError(what, where=name, fix="give 1 or more")
        made = getattr(op.nn, name[3:])(data, **arguments(a))
        if a["ceil_mode"]:
            _same_windows(name, spatial, data, a)
        return made

    spec = (
        f"pool_size:ints strides:ints={_each(1, n)} dilation:ints={_each(1, n)} "
        f"padding:ints={_each(0, n)} layout:str=NC{spatial} out_layout:str= ceil_mode:bool=False"
    )
    spec += " count_include_pad:bool=False" if kind == "avg" else ""
    native(name, "data", spec, to_relax=to_relax, defaults={"pool_size": [1] * n})


def _same_windows(name: str, spatial: str, data: relax.Expr, a: Values) -> None:
    """Refuse the windows that Relay counts and Relax leaves out: all in the padding at the end."""
    known = view(name, "data", data.ty)
    if sorted(a["layout"]) != sorted("NC" + spatial):
        return
    if pooling(known, spatial, a | {"out_layout": ""}) is None or known.shape is None:
        return
    for i, (before, after) in enumerate(padding(a["padding"], len(spatial), name)):
        size, stride = known.shape[a["layout"].index(spatial[i])], a["strides"][i]
        reach = (a["pool_size"][i] - 1) * a["dilation"][i] + 1
        if isinstance(size, int):
            last = -((reach - size - before - after) // stride)  # rounded up
            if last * stride >= size + before:
                raise RelayError(
                    f"with ceil_mode, the last window of {name} along {spatial[i]} holds padding "
                    "only: Relay counts it, Relax does not",
                    where=f"{name}, attribute ceil_mode",
                    fix="use ceil_mode=False, or less padding",
                )


def _adaptive(spatial: str) -> None:
    name = f"nn.adaptive_avg_pool{len(spatial)}d"

    def to_relax(data: relax.Expr, output_size: list[int], **a: Any) -> relax.Expr:
        if len(output_size) not in (0, 1, len(spatial)):
            raise RelayError(
                f"output_size {output_size} has {len(output_size)} sizes; {name} takes "
                f"{len(spatial)}, or 1",
                where=f"{name}, attribute output_size",
            )
        size = output_size * len(spatial) if len(output_size) == 1 else output_size
        return getattr(op.nn, name[3:])(data, size or None, **arguments(a))

    spec = f"output_size:ints=[] layout:str=NC{spatial} out_layout:str="
    native(name, "data", spec, to_relax=to_relax, defaults={"output_size": []})


for _spatial in ("W", "HW", "DHW"):
    _convolution(_spatial)
    _transposed(_spatial)
    _pool(_spatial, "avg")
    _pool(_spatial, "max")
    _adaptive(_spatial)


def _global(name: str, reduce: Callable[..., relax.Expr]) -> None:
    @stands_for(name, "data", "layout:str=NCHW out_layout:str=")
    def _(data: relax.Expr, layout: str, out_layout: str) -> relax.Expr:
        by_axis(view(name, "data", data.ty), layout, "NCHW")
        made = reduce(data, axis=[layout.index("H"), layout.index("W")], keepdims=True)
        if (out_layout or layout) == layout:
            return made
        return op.permute_dims(made, [layout.index(axis) for axis in out_layout])


_global("nn.global_avg_pool2d", op.mean)
_global("nn.global_max_pool2d", op.max)


def _resize2d(data: relax.Expr, size: list[int] | None, roi: Any, **a: Any) -> relax.Expr:
    if not size:
        raise RelayError("image.resize2d has no size", where="image.resize2d, attribute size")
    region = tuple(float(edge) for edge in roi) if roi else None
    # An empty rounding method is one of Relax's, not its default.
    given = arguments(a) | {"rounding_method": a["rounding_method"]}
    return op.image.resize2d(data, relax.ShapeExpr(size), region, **given)


def _resize2d_known(call: relax.Call) -> Values | None:
    sides = ints(call.args[1])
    roi = [float(edge) for edge in call.attrs.roi]
    return None if sides is None else {"size": sides, "roi": roi}


native(
    "image.resize2d",
    "data",
    "size:ints=None roi:any=None layout:str=NCHW method:str=linear "
    "coordinate_transformation_mode:str=half_pixel rounding_method:str=round "
    "cubic_alpha:float=-0.5 cubic_exclude:int=0 extrapolation_value:float=0.0 out_dtype:str=",
    to_relax=_resize2d,
    known=_resize2d_known,
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


def _subpixel(name: str, signature: str) -> None:
    @stands_for(name, "data", "block_size:int=1 layout:str=NCHW mode:str=DCR", signature=signature)
    def _(data: relax.Expr, block_size: int, layout: str, mode: str) -> relax.Expr:
        block, into_space = block_size, name == "nn.depth_to_space"
        if block < 1 or mode not in ("DCR", "CDR"):
            what = f'block_size is {block} and mode "{mode}": a positive number and DCR or CDR are '
            raise RelayError(what + "needed", where=name)
        need_dims(data.ty, f"{name} data")
        known = view(name, "data", data.ty)
        sizes = by_axis(known, layout, "NCHW")
        factor = block * block if into_space else block
        for axis in "C" if into_space else "HW":
            if isinstance(sizes[axis], int) and sizes[axis] % factor:
                what = f"{sizes[axis]} along {axis} is no multiple of {factor}"
                raise RelayError(what, where=known.where)
        n, c, h, w = (sizes[axis] for axis in "NCHW")
        first = op.permute_dims(data, [layout.index(axis) for axis in "NCHW"])
        if into_space:
            channels = c // factor
            depth_first = mode == "DCR"
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


_subpixel("nn.depth_to_space", "data block_size layout mode")
_subpixel("nn.space_to_depth", "data block_size layout")
