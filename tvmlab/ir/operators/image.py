"""Rows for windows over images: convolutions, pooling, resizing and moving channels into space.

The sources are src/relay/op/nn/{convolution,pooling,upsampling,nn}.cc and image/resize.cc of TVM
0.18. In Relax the weight's shape determines ``channels`` and ``kernel_size`` of a convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from .. import graph
from ..table import arguments, native, stands_for
from ..types import Tensor, differ, plain, result, view
from ..windows import by_axis, convolution, depthwise, padding, pooled
from .common import Values, ints

_IMPLIED = ("channels", "kernel_size")


def _each(value: int, count: int) -> str:
    return str([value] * count).replace(" ", "")


def _split_in_parts(layout: str, spatial: str) -> bool:
    """Return whether a kernel's layout has split axes, such as ``OIHW16o``."""
    return sorted(layout) != sorted("OI" + spatial)


def _implied(call: relax.Call, spatial: str, times: int = 1) -> Values:
    """Return ``channels`` and ``kernel_size`` as far as the weight's type determines them."""
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
        """Check a convolution, and return whether Relax would lose or refuse an attribute."""
        if _split_in_parts(a["kernel_layout"], spatial):
            return False
        x, w = view(name, "data", data.ty), view(name, "weight", kernel.ty)
        if w.shape is None:
            return a["channels"] is not None or a["kernel_size"] is not None
        if sorted(a["data_layout"]) != sorted("NC" + spatial):
            return False
        if w.ndim != len(a["kernel_layout"]) and not graph.has_type(data):
            return False  # an error that type inference reports later
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
            # Relay's depthwise weight, (channels, multiplier), becomes (channels * multiplier, 1).
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
        # The default padding of Relay's one-dimensional convolution has values for both sides.
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
            convolution(view(name, "data", data.ty), view(name, "weight", weight.ty), spatial, a)
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
        if a["ceil_mode"]:
            _same_windows(name, spatial, view(name, "data", data.ty), a)
        return getattr(op.nn, name[3:])(data, **arguments(a))

    spec = (
        f"pool_size:ints strides:ints={_each(1, n)} dilation:ints={_each(1, n)} "
        f"padding:ints={_each(0, n)} layout:str=NC{spatial} out_layout:str= ceil_mode:bool=False"
    )
    spec += " count_include_pad:bool=False" if kind == "avg" else ""
    native(name, "data", spec, to_relax=to_relax, defaults={"pool_size": [1] * n})


def _same_windows(name: str, spatial: str, data: Tensor, a: Values) -> None:
    """Refuse windows that Relay counts and Relax omits: those in the padding at the end."""
    if data.shape is None or sorted(a["layout"]) != sorted("NC" + spatial):
        return
    for i, pads in enumerate(padding(a["padding"], len(spatial), name)):
        stride, reach = a["strides"][i], (a["pool_size"][i] - 1) * a["dilation"][i] + 1
        size = data.size(a["layout"].index(spatial[i]))
        relays = -(-(size + sum(pads) - reach) // stride) + 1
        if differ(plain(relays), plain(pooled(size, reach, stride, pads, True))):
            what = f"with ceil_mode, the last window of {name} along {spatial[i]} holds padding "
            fix = "use ceil_mode=False, or less padding"
            raise data.error(what + "only: Relay counts it, Relax does not", "ceil_mode", fix)


def _adaptive(spatial: str) -> None:
    name = f"nn.adaptive_avg_pool{len(spatial)}d"

    def to_relax(data: relax.Expr, output_size: list[int] | None, **a: Any) -> relax.Expr:
        size = output_size or []
        size = size * len(spatial) if len(size) == 1 else size
        sizes = view(name, "data", data.ty).shape
        if not size and sizes is not None:  # TVM does not compile a call without a size
            size = [sizes[a["layout"].index(axis)] for axis in spatial]
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
        for order in (layout, out_layout or layout):
            by_axis(view(name, "data", data.ty), order, "NCHW")
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
    # An empty rounding method is a method of Relax, not its default.
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


@stands_for(
    "nn.upsampling",
    "data",
    "scale_h:float scale_w:float layout:str=NCHW method:str=nearest_neighbor "
    "align_corners:bool=False",
    defaults={"scale_h": 1, "scale_w": 1},
)
def _upsampling(data: relax.Expr, **a: Any) -> relax.Expr:
    sizes = by_axis(view("nn.upsampling", "data", data.ty), a["layout"], "NCHW")
    if not all(isinstance(sizes[axis], int) for axis in "HW"):
        raise RelayError("the data's height and width are not known", where="nn.upsampling")
    scales = {axis: a[f"scale_{axis.lower()}"] for axis in "HW"}
    if not all(0 < scale <= 2**16 for scale in scales.values()):
        what = f"the scales are {scales}; they are numbers above 0 and at most 65536"
        raise RelayError(what, where="nn.upsampling")
    shape = [round(sizes[axis] * scale) for axis, scale in scales.items()]
    return op.image.resize2d(
        data,
        relax.ShapeExpr(shape),
        layout=a["layout"],
        # Relay's names are bilinear and bicubic, Relax's are linear and cubic.
        method=a["method"].removeprefix("bi"),
        coordinate_transformation_mode="align_corners" if a["align_corners"] else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,
    )
