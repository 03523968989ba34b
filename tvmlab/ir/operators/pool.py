"""Rows for pooling: windows, whole images, and windows chosen by the result's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from ..types import plain, result, view
from ..windows import arrange, by_axis, padding, pooling
from .checks import relay_errors
from .common import Operands, Values, Written


def pool_attributes(spatial: str, average: bool) -> tuple[Attribute, ...]:
    """Give the attributes of a pooling operator, as Relay prints them."""
    n = len(spatial)
    common = (
        Attribute("pool_size", "ints"),
        Attribute("strides", "ints", [1] * n),
        Attribute("dilation", "ints", [1] * n),
        Attribute("padding", "ints", [0] * n),
        Attribute("layout", "str", "NC" + spatial),
        Attribute("out_layout", "str", ""),
        Attribute("ceil_mode", "bool", False),
    )
    return (*common, Attribute("count_include_pad", "bool", False)) if average else common


def _pool(spatial: str, average: bool, native: Callable[..., relax.Expr]) -> None:
    name = f"nn.{'avg' if average else 'max'}_pool{len(spatial)}d"
    attributes = pool_attributes(spatial, average)

    def read(operands: Operands, a: Values) -> relax.Expr:
        for attribute in ("pool_size", "strides", "dilation"):
            if min(a[attribute], default=1) < 1:
                raise RelayError(
                    f"{attribute} of {name} is {a[attribute]}", where=name, fix="give 1 or more"
                )
        made = native(operands[0], **(a | {"out_layout": a["out_layout"] or None}))
        if a["ceil_mode"]:
            _same_windows(name, spatial, operands[0], a)
        return made

    def write(call: relax.Call) -> Written:
        a = call.attrs
        found = {
            "pool_size": [int(i) for i in a.pool_size],
            "strides": [int(i) for i in a.strides],
            "dilation": [int(i) for i in a.dilation],
            "padding": [int(i) for i in a.padding],
            "layout": str(a.layout),
            "out_layout": "" if a.out_layout == a.layout else str(a.out_layout),
            "ceil_mode": bool(a.ceil_mode),
        }
        if average:
            found["count_include_pad"] = bool(a.count_include_pad)
        return list(call.args), found

    add(
        Operator(
            name,
            f"relax.{name}",
            ("data",),
            attributes,
            read,
            write,
            defaults={"pool_size": [1] * len(spatial)},
        )
    )


def _same_windows(name: str, spatial: str, data: relax.Expr, a: Values) -> None:
    """Refuse the windows that Relay counts and Relax leaves out: all in the padding at the end."""
    known = view(name, "data", data.ty)
    if sorted(a["layout"]) != sorted("NC" + spatial):
        return
    with relay_errors():
        shape = pooling(known, spatial, a | {"out_layout": ""})
    if shape is None or known.shape is None or not a["ceil_mode"]:
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
    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data = view(name, "data", types[0])
        sizes = by_axis(data, a["layout"], "NCHW") | {"H": 1, "W": 1}
        return result(arrange(data, sizes, a["out_layout"] or a["layout"]), data.dtype, 4)

    def expand(operands: Operands, a: Values) -> relax.Expr:
        layout, out = a["layout"], a["out_layout"] or a["layout"]
        made = reduce(operands[0], axis=[layout.index("H"), layout.index("W")], keepdims=True)
        if out == layout:
            return made
        return op.permute_dims(made, [layout.index(axis) for axis in out])

    attributes = (Attribute("layout", "str", "NCHW"), Attribute("out_layout", "str", ""))
    add_ours(name, ("data",), attributes, infer, expand)


def _adaptive(spatial: str, native: Callable[..., relax.Expr]) -> None:
    name = f"nn.adaptive_avg_pool{len(spatial)}d"
    attributes = (
        Attribute("output_size", "ints", []),
        Attribute("layout", "str", "NC" + spatial),
        Attribute("out_layout", "str", ""),
    )

    def read(operands: Operands, a: Values) -> relax.Expr:
        size = a["output_size"] or None
        if size is not None and len(size) not in (1, len(spatial)):
            raise RelayError(
                f"output_size {size} has {len(size)} sizes; {name} takes {len(spatial)}, or 1",
                where=f"{name}, attribute output_size",
            )
        size = size * len(spatial) if size is not None and len(size) == 1 else size
        return native(operands[0], size, a["layout"], a["out_layout"] or None)

    def write(call: relax.Call) -> Written:
        a = call.attrs
        return list(call.args), {
            "output_size": [plain(size) for size in a.output_size or ()],
            "layout": str(a.layout),
            "out_layout": "" if a.out_layout == a.layout else str(a.out_layout),
        }

    add(
        Operator(
            name,
            f"relax.{name}",
            ("data",),
            attributes,
            read,
            write,
            defaults={"output_size": []},
        )
    )


_pool("W", False, op.nn.max_pool1d)
_pool("HW", False, op.nn.max_pool2d)
_pool("DHW", False, op.nn.max_pool3d)
_pool("W", True, op.nn.avg_pool1d)
_pool("HW", True, op.nn.avg_pool2d)
_pool("DHW", True, op.nn.avg_pool3d)
_global("nn.global_avg_pool2d", op.mean)
_global("nn.global_max_pool2d", op.max)
_adaptive("W", op.nn.adaptive_avg_pool1d)
_adaptive("HW", op.nn.adaptive_avg_pool2d)
_adaptive("DHW", op.nn.adaptive_avg_pool3d)
