"""Resize and Upsample, for which upstream lacks modes: a table of places for each axis.

Upstream scales by the ratio of the sizes, has no antialiasing, and needs constants. Where that
differs from ONNX, a table has the inputs of each result and their weights, along each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of
from .sizes import computed, not_too_large

__all__ = ["RESIZE"]


# With fewer channels, channels last would not fill a vector.
_CHANNELS = 8


def _float(number: Any) -> Any:
    return tirx.Cast("float64", number)


def _coordinate(x: Any, n: float, out: Any, scale: Any, mode: str, roi: Sequence[Any]) -> Any:
    """Return the place in an axis of `n` of the result `x` of `out` results."""
    width, zero = scale * n, tirx.const(0.0, str(x.ty.dtype))
    if mode == "align_corners":
        return tirx.Select(width == 1.0, zero, x * (n - 1) / (width - 1.0))
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, reach = roi[0], (roi[1] - roi[0]) * (n - 1)
        step = reach / (width - 1.0)
        return start * (n - 1) + tirx.Select(width == 1.0, reach / 2.0, x * step)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    offset = n / 2 * (1.0 - out / width) if mode == "half_pixel_symmetric" else zero
    made = offset + (x + 0.5) / scale - 0.5
    return tirx.Select(width == 1.0, x - 0.5, made) if mode == "pytorch_half_pixel" else made


_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: tirx.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: tirx.floor(x + 0.5),
    "floor": tirx.floor,
    "ceil": tirx.ceil,
}


def _weight(x: Any, a: float | None) -> Any:
    """Return the weight of an input at a distance of `x`, of cubic interpolation if `a` is set."""
    zero = _float(0)
    if a is None:
        return tirx.max(1.0 - x, zero)
    near = ((a + 2) * x - (a + 3)) * x * x + 1.0
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return tirx.Select(x <= 1.0, near, tirx.Select(x < 2.0, far, zero))


def _index(place: Any, n: int) -> Any:
    """Return the index of an axis of `n` that is next to a place; 0 for NaN."""
    place = tirx.Select(place > 0.0, place, _float(0))
    return tirx.Cast("int64", tirx.Select(place < n - 1.0, place, _float(n - 1)))


def _plan(
    importer: GraphImporter, inputs: Inputs, how: Attributes, shape: list[int], axes: list[int]
) -> tuple[list[Any], list[Any], Any]:
    """Return the new sizes of axes, the reaches of results, and the scales; arrays if known."""
    scales, sizes = inputs[2:4]
    given = scales if sizes is None or importer.known_sizes(sizes) == [0] else sizes
    n = [shape[axis] for axis in axes]
    if given is None or importer.known_sizes(given) != [len(n)] or 0 in shape:
        raise importer.unsupported("of no elements or too few scales", "give a scale for each axis")
    value, half = importer.value(given), 0.0
    by: Any = op if value is None else np
    scale = op.astype(given, "float64") if value is None else value.astype("float64")
    if given is sizes:
        old, half = np.array(n, "float64"), 0.5
        scale = by.divide(scale, const(old) if value is None else old)
        if (policy := how.get("keep_aspect_ratio_policy", b"stretch")) != b"stretch":
            most = by.min if policy == b"not_larger" else by.max
            scale = by.broadcast_to(most(scale, 0), [len(n)])

    def plan(_: Any, scale: Sequence[Any]) -> Any:
        products = [one * float(size) for one, size in zip(scale, n, strict=True)]
        new = [tirx.floor(_float(tirx.Cast("float32", one)) + half) for one in products]
        fit = tirx.all(True, *(tirx.all(size >= 1.0, size < 2.0**31) for size in new))
        whole = dict(zip(axes, new, strict=True))
        sizes = [_float(whole.get(k, size)).astype("int64") for k, size in enumerate(shape)]
        reach = [tirx.ceil(how["width"] / tirx.min(one, _float(1))) + 1.0 for one in scale]
        conditions = {"a new size is less than 1, or too large": fit, **not_too_large(sizes)}
        return [*new, *reach], conditions

    if value is None:
        scale = importer.bb.emit(scale)
        where, fix = importer.place(), "give scales or sizes above 0 that fit the tensor"
        made = computed(importer.bb, 2 * len(n), plan, [scale], (), where, fix)
    else:
        reach = np.ceil(how["width"] / np.minimum(scale, 1)) + 1
        # Other runtimes multiply float32 numbers: 10 times 1.3 is 13.
        new = np.floor((scale * n).astype("float32") + half)
        made = [int(number) for number in (*new, *reach)]
    return made[: len(n)], made[len(n) :], scale


def _known_upstream(attributes: Attributes, mode: str, common: str) -> bool:
    """Return whether upstream's operator has these modes and attributes."""
    if attributes.get("antialias") or attributes.get("exclude_outside") or "axes" in attributes:
        return False
    modes = ("half_pixel", "align_corners", "asymmetric")
    return mode in ("nearest", "linear") and common in modes


def _exact_upstream(mode: str, shape: list[int], made: list[int], scales: list[float]) -> bool:
    """Return whether upstream's operator, which scales by the ratio of sizes, is the same."""
    ratios = [new / old for new, old in zip(made, shape, strict=True)]
    whole = all(ratio.is_integer() for ratio in ratios)  # others are rounded otherwise
    return (
        bool(np.allclose(ratios, scales, rtol=1e-6))
        and (whole or mode != "nearest")
        and len(shape) == 4
        and made[:2] == shape[:2]
        and min(made) > 1
    )


def _places(scale: te.Tensor, roi: te.Tensor, out: Any, how: Attributes) -> te.Tensor:
    """Return the place in the axis of each of `out` results."""
    i, n = how["i"], float(how["n"])
    # Other runtimes find the nearest input with float32 numbers, whose rounding decides ties.
    dtype = "float32" if how["mode"] == "nearest" else "float64"

    def place(o: Any) -> Any:
        given = (o, out, scale(i), roi(i), roi(i + scale.shape[0]))
        at, last, factor, *ends = (tirx.Cast(dtype, value) for value in given)
        return _float(_coordinate(at, n, last, factor, how["common"], ends))

    return te.compute((out,), place)


def _along(
    importer: GraphImporter, x: Any, scale: Any, roi: Any, out: Any, reach: Any, how: Attributes
) -> Any:
    """Resize an axis to `out`; `how` has the axis, its size and the number of its scale."""
    bb, dtype, axis, n = importer.bb, str(x.ty.dtype), how["axis"], how["n"]
    smooth, a = how.get("antialias"), how["a"]

    def nearest(scale: te.Tensor, roi: te.Tensor, out: Any) -> te.Tensor:
        places = _places(scale, roi, out, how)
        return te.compute((out,), lambda o: _index(_NEAREST[how["nearest"]](places(o)), n))

    if how["mode"] == "nearest":
        index = bb.emit_te(nearest, scale, roi, out, primfunc_name_hint="nearest")
        return bb.emit(op.take(x, index, axis, "clip"))
    begin, steps = (reach, 2 * reach + 1) if smooth else ((0, 2) if a is None else (1, 4))

    def tables(scale: te.Tensor, roi: te.Tensor, *ends: Any) -> list[te.Tensor]:
        out, begin, steps = ends
        places, shape = _places(scale, roi, out, how), (out, steps)

        def tap(o: Any, t: Any) -> Any:
            return tirx.floor(places(o)) + _float(t - begin)

        def weight(o: Any, t: Any) -> Any:
            wide = tirx.min(scale(how["i"]), _float(1)) if smooth else 1.0
            made = _weight(tirx.abs(tap(o, t) - places(o)) * wide, a)
            inside = tirx.all(tap(o, t) >= 0.0, tap(o, t) < float(n))
            return tirx.Select(inside, made, _float(0)) if how.get("exclude_outside") else made

        made = te.compute(shape, weight)
        if smooth or how.get("exclude_outside"):
            k, parts = te.reduce_axis((0, steps), "k"), made
            whole = te.compute((out,), lambda o: te.sum(parts(o, k), k))
            made = te.compute(shape, lambda o, t: parts(o, t) / whole(o))
        index = te.compute(shape, lambda o, t: _index(tap(o, t), n))
        return [te.compute(shape, lambda o, t: tirx.Cast(dtype, made(o, t))), index]

    def sums(x: te.Tensor, weights: te.Tensor, index: te.Tensor) -> te.Tensor:
        t = te.reduce_axis((0, weights.shape[1]), "t")

        def element(*at: Any) -> Any:
            factor, o = weights(at[axis], t), at[axis]
            value = x(*at[:axis], index(o, t), *at[axis + 1 :])
            # An infinite input has no effect where its weight is 0.
            return te.sum(tirx.Select(factor != 0, value * factor, tirx.const(0, dtype)), t)

        return te.compute([*x.shape[:axis], weights.shape[0], *x.shape[axis + 1 :]], element)

    made = bb.emit_te(tables, scale, roi, out, begin, steps, primfunc_name_hint="resize_tables")
    parts = [bb.emit(relax.TupleGetItem(made, i)) for i in range(2)]
    return bb.emit_te(sums, x, *parts, primfunc_name_hint="resize")


def _resize(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    if importer.opset < 11:  # the inputs are the tensor and its scales
        inputs = [inputs[0], None, inputs[1], None]
        same = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
        attributes = {**attributes, **same}
    x, roi, *given = [*inputs, *[None] * 4][:4]
    mode = attributes.get("mode", b"nearest").decode()
    common = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    crops = common == "tf_crop_and_resize"
    shape, at_run_time = sizes_of(x), importer.computed([*given, *([roi] if crops else [])])
    by_upstream = _known_upstream(attributes, mode, common)
    scales = None if given[0] is None else importer.value(given[0])
    if shape and scales is not None and len(scales) == len(shape) and not crops:
        # An axis that keeps its size can have any size, here 2.
        pairs = zip(shape, scales, strict=True)
        shape = [2 if size is None and scale == 1 else size for size, scale in pairs]
    if shape is None or None in shape:
        fractions = scales is not None and (scales % 1).any()  # upstream takes the sizes' ratio
        if fractions or at_run_time or not by_upstream:
            raise importer.unsupported("of unknown sizes", "give `shapes` to load")
        return importer.by_upstream("Resize", inputs, attributes)
    known, dtype = [size for size in shape if size is not None], str(x.ty.dtype)
    axes = [axis % len(known) for axis in attributes.get("axes", range(len(known)))]
    n = [known[axis] for axis in axes]
    a = attributes.get("cubic_coeff_a", -0.75) if mode == "cubic" else None
    nearest = attributes.get("nearest_mode", b"round_prefer_floor").decode()
    how = {**attributes, "mode": mode, "common": common, "nearest": nearest, "a": a}
    how["width"] = 1.0 if a is None else 2.0
    made, reach, factors = _plan(importer, [x, roi, *given], how, known, axes)
    scale = factors if isinstance(factors, relax.Expr) else const(factors)
    new = scale is factors or importer.opset < 11
    if by_upstream and not new and _exact_upstream(mode, known, made, factors):
        return importer.by_upstream("Resize", inputs, attributes)
    if mode != "nearest" and "float" not in dtype:
        raise importer.unsupported(f"of {dtype} by interpolation", "convert it to float32 before")
    if roi is None or importer.known_sizes(roi) == [0]:
        roi = const(np.array([0] * len(n) + [1] * len(n), "float32"))
    changed = [
        (i, axis)
        for i, axis in enumerate(axes)
        if crops or scale is factors or made[i] != n[i] or not np.isclose(factors[i], 1)
    ]
    # Channels last, as convolutions are computed: their transposes then cancel out.
    image = len(known) == 4 and known[1] >= _CHANNELS and {axis for _, axis in changed} == {2, 3}
    x = importer.bb.emit(op.permute_dims(x, [0, 2, 3, 1])) if image else x
    for i, axis in changed:
        one = {**how, "axis": axis - image, "n": n[i], "i": i}
        x = _along(importer, x, scale, roi, made[i], reach[i], one)
    x = importer.bb.emit(op.permute_dims(x, [0, 3, 1, 2])) if image else x
    if not crops:
        return x

    def outside(x: te.Tensor, scale: te.Tensor, roi: te.Tensor) -> te.Tensor:
        fill = tirx.const(attributes.get("extrapolation_value", 0.0), dtype)
        tables = [
            _places(scale, roi, x.shape[axis], {**how, "n": n[i], "i": i})
            for i, axis in enumerate(axes)
        ]

        def element(*at: Any) -> Any:
            found = [table(at[axis]) for table, axis in zip(tables, axes, strict=True)]
            ends = zip(found, n, strict=True)
            kept = [tirx.all(place >= 0.0, place <= size - 1.0) for place, size in ends]
            return tirx.Select(tirx.all(True, *kept), x(*at), fill)

        return te.compute(x.shape, element)

    return importer.bb.emit_te(outside, x, scale, roi, primfunc_name_hint="extrapolate")


def _upsample(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    scales = inputs[1] if importer.opset >= 9 else const(np.array(attributes["scales"], "float32"))
    opset, importer.opset = importer.opset, 10
    try:
        return _resize(importer, [inputs[0], scales], attributes)
    finally:
        importer.opset = opset


#: The converters of this module.
RESIZE = {"Resize": _resize, "Upsample": _upsample}
