"""Rows for convolutions, in one, two and three dimensions, and transposed ones.

Relax knows neither ``channels`` nor ``kernel_size``, which the weight's shape implies. They are
checked against it on reading and taken from it on writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ..graph import has_type
from ..table import arguments, attributes, native, values_of
from ..types import result, view
from ..windows import convolution, depthwise, transposed
from .checks import relay_errors
from .common import Values, Written


def _each(value: int, count: int) -> str:
    return str([value] * count).replace(" ", "")


def _spec(spatial: str) -> str:
    n = len(spatial)
    # The default padding of Relay's one-dimensional convolution has both sides.
    return (
        f"strides:ints={_each(1, n)} padding:ints={_each(0, max(n, 2))} "
        f"dilation:ints={_each(1, n)} groups:int=1 channels:int=None kernel_size:ints=None "
        f"data_layout:str=NC{spatial} kernel_layout:str=OI{spatial} out_layout:str= out_dtype:str="
    )


def _transpose_spec(spatial: str) -> str:
    n = len(spatial)
    return (
        f"channels:int=None kernel_size:ints=None strides:ints={_each(1, n)} "
        f"output_padding:ints={_each(0, n)} padding:ints={_each(0, n)} "
        f"dilation:ints={_each(1, n)} groups:int=1 "
        f"data_layout:str=NC{spatial} kernel_layout:str=IO{spatial} out_layout:str= out_dtype:str="
    )


CONV2D = attributes(_spec("HW"))
CONV2D_TRANSPOSE = attributes(_transpose_spec("HW"))
TRANSPOSE_SIGNATURE = (
    *("strides", "padding", "dilation", "groups", "channels", "kernel_size"),
    *("data_layout", "kernel_layout", "out_layout", "output_padding", "out_dtype"),
)
_IMPLIED = ("channels", "kernel_size")


def _letters(layout: str, spatial: str) -> bool:
    """Return whether a kernel's layout is plain: not split in blocks, such as ``OIHW16o``."""
    return sorted(layout) == sorted("OI" + spatial)


def _types(name: str, *operands: relax.Expr) -> tuple[Any, Any]:
    data, weight = operands
    return view(name, "data", data.ty), view(name, "weight", weight.ty)


def _implied(call: relax.Call, spatial: str, times: int = 1) -> Values:
    """Return ``channels`` and ``kernel_size`` as far as the weight's type tells them."""
    layout, weight = str(call.attrs.kernel_layout), view("", "weight", call.args[1].ty)
    if not _letters(layout, spatial) or weight.shape is None or len(weight.shape) != len(layout):
        return {"channels": None, "kernel_size": None}
    sizes = dict(zip(layout, weight.shape, strict=True))
    kernel = [sizes[axis] for axis in spatial]
    static = all(isinstance(size, int) for size in kernel)
    channels = sizes["O"] * times if isinstance(sizes["O"], int) else None
    return {"channels": channels, "kernel_size": kernel if static else None}


def _needs_ours(name: str, spatial: str, operands: Sequence[relax.Expr], a: Values) -> bool:
    """Check a convolution, and return whether Relax's own would lose or refuse it.

    It would lose ``channels`` and ``kernel_size`` where the weight's shape is not known, and
    refuses a depthwise weight that Relay stores as (channels, multiplier).
    """
    if not _letters(a["kernel_layout"], spatial):
        return False
    data, weight = _types(name, *operands)
    if weight.shape is None:
        return a["channels"] is not None or a["kernel_size"] is not None
    if sorted(a["data_layout"]) != sorted("NC" + spatial):
        return False
    if len(weight.shape) != len(a["kernel_layout"]) and not has_type(operands[0]):
        return False  # wrong, which comes out where types are inferred
    with relay_errors():
        convolution(data, weight, spatial, a)
    sizes = dict(zip(a["kernel_layout"], weight.shape, strict=True))
    channels = data.shape[a["data_layout"].index("C")] if data.shape else None
    return depthwise(channels, sizes["O"], a["groups"]) and sizes["I"] != 1


def _convolution(spatial: str) -> None:
    name = f"nn.conv{len(spatial)}d"
    make, spec = getattr(op.nn, name[3:]), _spec(spatial)
    rows = attributes(spec)

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data, weight = view(name, "data", types[0]), view(name, "weight", types[1])
        shape, _ = convolution(data, weight, spatial, a)
        return result(shape, a["out_dtype"] or data.dtype, len(spatial) + 2)

    def expand(data: relax.Expr, weight: relax.Expr, **a: Any) -> relax.Expr:
        if not _needs_ours(name, spatial, (data, weight), a | dict.fromkeys(_IMPLIED)):
            return make(data, weight, **arguments(a, _IMPLIED))
        # Relay's depthwise weight, (channels, multiplier), is Relax's (channels * multiplier, 1).
        layout = a["kernel_layout"]
        plain = op.permute_dims(weight, [layout.index(axis) for axis in "OI" + spatial])
        sizes = dict(zip(layout, weight.ty.shape, strict=True))
        shape = [sizes["O"] * sizes["I"], 1, *(sizes[axis] for axis in spatial)]
        a["kernel_layout"] = "OI" + spatial
        return make(data, op.reshape(plain, shape), **arguments(a, _IMPLIED))

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr | None:
        ours = _needs_ours(name, spatial, given, a)
        return None if ours else make(*given, **arguments(a, _IMPLIED))

    def from_relax(call: relax.Call) -> Written:
        found = values_of(call, rows, **_implied(call, spatial))
        return list(call.args), found

    native(
        name,
        "data weight",
        spec,
        to_relax=to_relax,
        from_relax=from_relax,
        expand=expand,
        infer=infer,
    )


def _transposed(spatial: str) -> None:
    name = f"nn.conv{len(spatial)}d_transpose"
    make, spec = getattr(op.nn, name[3:]), _transpose_spec(spatial)
    rows = attributes(spec)

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr:
        if _letters(a["kernel_layout"], spatial) and len(a["data_layout"]) == len(spatial) + 2:
            with relay_errors():
                transposed(*_types(name, *given), spatial, a)
        return make(*given, **arguments(a, _IMPLIED))

    def from_relax(call: relax.Call) -> Written:
        implied = _implied(call, spatial, times=int(call.attrs.groups))
        return list(call.args), values_of(call, rows, **implied)

    signature = " ".join(("data", "weight", *TRANSPOSE_SIGNATURE))
    native(name, "data weight", spec, to_relax=to_relax, from_relax=from_relax, signature=signature)


for _spatial in ("W", "HW", "DHW"):
    _convolution(_spatial)
    _transposed(_spatial)
