"""Rows for pooling: windows, whole images, and windows chosen by the result's size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, arguments, attributes, native, stands_for
from ..types import view
from ..windows import by_axis, padding, pooling
from .checks import relay_errors
from .common import Values


def _spec(spatial: str, average: bool) -> str:
    ones, zeros = ("[" + ",".join(digit * len(spatial)) + "]" for digit in "10")
    return (
        f"pool_size:ints strides:ints={ones} dilation:ints={ones} padding:ints={zeros} "
        f"layout:str=NC{spatial} out_layout:str= ceil_mode:bool=False"
        + " count_include_pad:bool=False"
        * average
    )


def pool_attributes(spatial: str, average: bool) -> tuple[Attribute, ...]:
    """Return the attributes of a pooling operator, in the order in which Relay prints them."""
    return attributes(_spec(spatial, average))


def _pool(spatial: str, average: bool) -> None:
    name = f"nn.{'avg' if average else 'max'}_pool{len(spatial)}d"

    def to_relax(data: relax.Expr, **a: Any) -> relax.Expr:
        for attribute in ("pool_size", "strides", "dilation"):
            if min(a[attribute], default=1) < 1:
                raise RelayError(
                    f"{attribute} of {name} is {a[attribute]}", where=name, fix="give 1 or more"
                )
        made = getattr(op.nn, name[3:])(data, **arguments(a))
        if a["ceil_mode"]:
            _same_windows(name, spatial, data, a)
        return made

    defaults = {"pool_size": [1] * len(spatial)}
    native(name, "data", _spec(spatial, average), to_relax=to_relax, defaults=defaults)


def _same_windows(name: str, spatial: str, data: relax.Expr, a: Values) -> None:
    """Refuse the windows that Relay counts and Relax leaves out: all in the padding at the end."""
    known = view(name, "data", data.ty)
    if sorted(a["layout"]) != sorted("NC" + spatial):
        return
    with relay_errors():
        shape = pooling(known, spatial, a | {"out_layout": ""})
    if shape is None or known.shape is None:
        return
    for i, (axis, pads) in enumerate(
        zip(spatial, padding(a["padding"], len(spatial), name), strict=True)
    ):
        size, stride = known.shape[a["layout"].index(axis)], a["strides"][i]
        reach = (a["pool_size"][i] - 1) * a["dilation"][i] + 1
        if not isinstance(size, int):
            continue
        last = -((reach - size - sum(pads)) // stride)  # rounded up
        if last * stride >= size + pads[0]:
            raise RelayError(
                f"with ceil_mode, the last window of {name} along {axis} holds padding only: "
                "Relay counts it, Relax does not",
                where=f"{name}, attribute ceil_mode",
                fix="use ceil_mode=False, or less padding",
            )


def _global(name: str, reduce: Callable[..., relax.Expr]) -> None:
    @stands_for(name, "data", "layout:str=NCHW out_layout:str=")
    def _(data: relax.Expr, layout: str, out_layout: str) -> relax.Expr:
        by_axis(view(name, "data", data.ty), layout, "NCHW")
        made = reduce(data, axis=[layout.index("H"), layout.index("W")], keepdims=True)
        if (out_layout or layout) == layout:
            return made
        return op.permute_dims(made, [layout.index(axis) for axis in out_layout])


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
    _pool(_spatial, average=False)
    _pool(_spatial, average=True)
    _adaptive(_spatial)
_global("nn.global_avg_pool2d", op.mean)
_global("nn.global_max_pool2d", op.max)
