"""`conv2d` and `conv2d_transpose` as kernels, in any order of axes, with groups and dilation.

They are plain loops. `tvmlab.schedule` has forms of its own for what it serves (NHWC with constant
weights); all else, and other targets than CPUs, get these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from ...ir import windows
from .filters import Filters
from .operands import Given, Row, call_te, known_shape

__all__ = ["conv2d", "conv2d_transpose"]


def conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.conv2d`."""
    given = Given(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    layout, out_layout = a["data_layout"], a["out_layout"] or a["data_layout"]
    shape, channel = known_shape(given.name, "data", call), out_layout.index("C")
    filters = Filters(given, given.shape("data")[layout.index("C")], shape[channel])
    zero = given.zero_row("input_zero_point", dtype)
    extra = filters.sums.row() if filters.sums else None
    strides = windows.steps(a["strides"], 2, given.name, "strides")
    dilation = windows.steps(a["dilation"], 2, given.name, "dilation")
    pads = windows.padding(a["padding"], 2, given.name)

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        data = _padded(data, layout, pads, zero.read(0).astype(dtype))
        i, y, x = _axes(filters)

        def value(*index: Any) -> tirx.PrimExpr:
            at = dict(zip(out_layout, index, strict=True))
            o = at["C"]
            at |= {
                "C": o // filters.each * filters.inner + i,
                "H": at["H"] * strides[0] + y * dilation[0],
                "W": at["W"] * strides[1] + x * dilation[1],
            }
            number = data(*(at[letter] for letter in layout)).astype(filters.kind)
            if extra is None:
                number = number - zero.read(0).astype(filters.kind)
            return te.sum(number * filters.read(weight, o, i, y, x), axis=[i, y, x])

        sums = te.compute(shape, value, name="qnn_conv2d")
        return _finished(sums, extra, channel, a["out_dtype"])

    rows = [zero, *filters.rows, *([extra] if extra else [])]
    return call_te(builder, compute, [given["data"], filters.operand], rows, "qnn_conv2d")


def conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.conv2d_transpose`: each output looks for the inputs that are spread to it."""
    given = Given(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    layout, out_layout = a["data_layout"], a["out_layout"] or a["data_layout"]
    shape, channel = known_shape(given.name, "data", call), out_layout.index("C")
    sizes = dict(zip(layout, given.shape("data"), strict=True))
    filters = Filters(given, sizes["C"], shape[channel])
    zero = given.zero_row("input_zero_point", dtype)
    strides = windows.steps(a["strides"], 2, given.name, "strides")
    dilation = windows.steps(a["dilation"], 2, given.name, "dilation")
    pads = windows.padding(a["padding"], 2, given.name)

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        i, y, x = _axes(filters)

        def value(*index: Any) -> tirx.PrimExpr:
            at = dict(zip(out_layout, index, strict=True))
            o, inside = at["C"], []
            for n, (letter, tap) in enumerate((("H", y), ("W", x))):
                place = at[letter] + pads[n][0] - tap * dilation[n]
                at[letter] = tirx.floordiv(place, strides[n])
                inside += [tirx.floormod(place, strides[n]) == 0]
                inside += [at[letter] >= 0, at[letter] < sizes[letter]]
            at["C"] = o // filters.each * filters.inner + i
            number = data(*(at[letter] for letter in layout)).astype(filters.kind)
            number = number - zero.read(0).astype(filters.kind)
            number = tirx.if_then_else(tirx.all(*inside), number, tirx.const(0, filters.kind))
            return te.sum(number * filters.read(weight, o, i, y, x), axis=[i, y, x])

        sums = te.compute(shape, value, name="qnn_conv2d_transpose")
        return _finished(sums, None, channel, a["out_dtype"])

    rows = [zero, *filters.rows]
    return call_te(builder, compute, [given["data"], filters.operand], rows, "qnn_conv2d_transpose")


def _axes(filters: Filters) -> list[tirx.IterVar]:
    """Make the axes of a sum: over inputs, rows and columns."""
    named = zip(("ri", "ry", "rx"), (filters.inner, *filters.taps), strict=True)
    return [te.reduce_axis((0, size), name) for name, size in named]


def _padded(
    data: te.Tensor, layout: str, pads: Sequence[tuple[int, int]], fill: tirx.PrimExpr
) -> te.Tensor:
    """Surround an image with a number; give it as it is where there is nothing to add."""
    around = dict(zip("HW", pads, strict=True))
    if not any(before or after for before, after in pads):
        return data
    shape = [
        size + sum(around.get(letter, ())) for letter, size in zip(layout, data.shape, strict=True)
    ]

    def value(*index: Any) -> tirx.PrimExpr:
        source, inside = list(index), []
        for n, letter in enumerate(layout):
            before, after = around.get(letter, (0, 0))
            source[n] = index[n] - before
            inside += [index[n] >= before] if before else []
            inside += [index[n] < before + data.shape[n]] if after else []
        return tirx.if_then_else(tirx.all(*inside), data(*source), fill)

    return te.compute(shape, value, name="pad")


def _finished(sums: te.Tensor, extra: Row | None, channel: int, dtype: str) -> te.Tensor:
    """Add what the zero points do, and cast; give the sums as they are where that is nothing."""
    plain = extra is None or extra.is_all(0)
    if plain and str(sums.dtype) == dtype:
        return sums

    def value(*index: Any) -> tirx.PrimExpr:
        found = sums(*index)
        return (found if plain or extra is None else found + extra.read(index[channel])).astype(
            dtype
        )

    return te.compute(sums.shape, value, name="corrected")
