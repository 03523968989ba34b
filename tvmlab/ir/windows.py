"""Shapes of convolutions and pooling, for one, two or three spatial axes, and of matrix products.

The sources are Relay's `Conv2DRel`, `Conv2DTransposeRel` (src/relay/op/nn/convolution.h),
`Pool2DRel` (src/relay/op/nn/pooling.cc), `DenseRel` and `BatchMatmulRel` (src/relay/op/nn/nn.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ..errors import ShapeError
from .types import Tensor, differ


def by_axis(operand: Tensor, layout: str, letters: str) -> dict[str, Any]:
    """Name an operand's sizes by a layout's letters; None for each unknown size."""
    _check_order(operand, layout, letters)
    operand.rank(len(layout))
    return dict(zip(layout, operand.shape or [None] * len(layout), strict=True))


def _check_order(operand: Tensor, layout: str, letters: str) -> None:
    if sorted(layout) != sorted(letters):
        what = f'layout "{layout}" is not understood: it has to be an order of {letters}.'
        raise operand.error(what)


def padding(given: Sequence[int], spatial: int, call: str) -> list[tuple[int, int]]:
    """Return each axis's padding on both sides, from one size, one per axis, or one per side."""
    where = f"{call}, attribute padding"
    if any(size < 0 for size in given):
        raise ShapeError(f"padding {list(given)} has a negative size", where=where)
    if len(given) in (1, spatial):
        return [(size, size) for size in (given if len(given) == spatial else [*given] * spatial)]
    if len(given) == 2 * spatial:
        return list(zip(given[:spatial], given[spatial:], strict=True))
    what = f"{len(given)} sizes; 1, {spatial} or {2 * spatial} are needed"
    raise ShapeError(f"padding {list(given)} has {what}", where=where)


def steps(given: Sequence[int], spatial: int, call: str, name: str) -> list[int]:
    """Return one positive number for each spatial axis."""
    found = list(given) * spatial if len(given) == 1 else list(given)
    if len(found) != spatial or any(size < 1 for size in found):
        what = f"{name} is {list(given)}; {spatial} positive numbers are needed"
        raise ShapeError(what, where=f"{call}, attribute {name}")
    return found


def _arranged(data: Tensor, sizes: dict[str, Any], layout: str) -> list[Any] | None:
    """Put sizes into a layout's order; None if one of them is unknown."""
    _check_order(data, layout, "".join(sizes))
    found = [sizes[axis] for axis in layout]
    if any(isinstance(size, int) and size < 1 for size in found):
        why = "the window is larger than the padded data"
        raise data.error(f"the result would have shape {found}: {why}")
    return None if any(size is None for size in found) else found


def _implied(weight: Tensor, a: dict[str, Any], name: str, derived: Any) -> Any:
    """Return the value that the weight's shape and an attribute imply, if they agree."""
    given, known = a[name], derived if isinstance(derived, list) else [derived]
    if given is None:
        return derived
    listed = given if isinstance(given, list) else [given]
    if len(listed) != len(known) or any(map(differ, known, listed)):
        what = f"{name} is {given}; the weight of shape {weight.shape} implies {derived}"
        raise weight.error(what, name)
    return given if None in known else derived


def convolution(
    data: Tensor, weight: Tensor, spatial: str, a: dict[str, Any]
) -> tuple[list[Any] | None, Any]:
    """Infer a convolution's shape and channels; with ``output_padding`` it is transposed."""
    n, call, groups, transposed = len(spatial), data.call, a["groups"], "output_padding" in a
    x = by_axis(data, a["data_layout"], "NC" + spatial)
    w = by_axis(weight, a["kernel_layout"], "OI" + spatial)
    whole = not transposed and isinstance(x["C"], int)
    if groups < 1 or (whole and x["C"] % groups):
        raise data.error(f"groups is {groups}; the data has {x['C']} channels", "groups")
    multiplied = not transposed and depthwise(x["C"], w["O"], groups)
    if not multiplied and differ(x["C"] // groups if whole else x["C"], w["I"]):
        what = f"the data of shape {data.shape} has {x['C']} in {groups} groups"
        raise weight.error(f"weight has {w['I']} input channels; {what}")
    factor = w["I"] if multiplied else groups if transposed else 1
    made = None if w["O"] is None or factor is None else w["O"] * factor
    out = {"N": x["N"], "C": _implied(weight, a, "channels", made)}
    windows = zip(
        spatial,
        _implied(weight, a, "kernel_size", [w[axis] for axis in spatial]),
        steps(a["strides"], n, call, "strides"),
        steps(a["dilation"], n, call, "dilation"),
        padding(a["padding"], n, call),
        padding(a["output_padding"] if transposed else [0], n, call),
        strict=True,
    )
    for axis, size, stride, step, pads, (added, _) in windows:
        if size is None or x[axis] is None:
            out[axis] = None
            continue
        reach = (size - 1) * step + 1
        out[axis] = (
            (x[axis] - 1) * stride + reach - sum(pads) + added
            if transposed
            else (x[axis] + sum(pads) - reach) // stride + 1
        )
    return _arranged(data, out, a["out_layout"] or a["data_layout"]), out["C"]


def depthwise(inputs: Any, outer: Any, groups: int) -> bool:
    """Return whether Relay reads a weight's O as the input channels, and its I as a multiplier."""
    return groups > 1 and bool(isinstance(inputs, int) and inputs == outer == groups)


def pooling(data: Tensor, spatial: str, a: dict[str, Any]) -> list[Any] | None:
    """Infer the shape of a pooling's result; None if it is unknown."""
    n = len(spatial)
    out = by_axis(data, a["layout"], "NC" + spatial)
    window = zip(
        spatial,
        steps(a["pool_size"], n, data.call, "pool_size"),
        steps(a["strides"], n, data.call, "strides"),
        steps(a["dilation"], n, data.call, "dilation"),
        padding(a["padding"], n, data.call),
        strict=True,
    )
    for axis, size, stride, step, pads in window:
        if out[axis] is not None:
            out[axis] = pooled(out[axis], (size - 1) * step + 1, stride, pads, a["ceil_mode"])
    return _arranged(data, out, a["out_layout"] or a["layout"])


def pooled(length: Any, reach: int, stride: int, pads: tuple[int, int], ceil_mode: bool) -> Any:
    """Count the windows along an axis as Relax does; Relay also counts a window of padding."""
    rest = length + sum(pads) - reach
    if not ceil_mode:
        return rest // stride + 1
    count = (rest + stride - 1) // stride + 1
    if pads[1] + stride <= reach:  # the last window does not fit there
        return count
    outside = (count - 1) * stride >= length + pads[0]
    if isinstance(length, int):
        return count - 1 if outside else count
    return tirx.if_then_else(outside, count - 1, count)


def pooled_size(
    length: int, reach: int, stride: int, pads: tuple[int, int], ceil_mode: bool, call: str
) -> int:
    """Return `pooled`, and refuse data in which no window fits."""
    count = int(pooled(length, reach, stride, pads, ceil_mode))
    if count < 1:
        raise ShapeError("the window is larger than the padded data", where=f"{call}, operand data")
    return count


def dense_shape(data: Tensor, weight: Tensor, units: int | None) -> tuple[list[Any] | None, Any]:
    """Infer the shape of ``data @ weight.T`` and its number of units."""
    weight.rank(2)
    if data.ndim == 0:
        data.rank(1, 2)
    if differ(data.size(-1), weight.size(1)):
        what = f"the data of shape {data.shape} has {data.size(-1)}"
        raise weight.error(f"weight has {weight.size(1)} inputs; {what}")
    made = weight.size(0)
    if units is not None and differ(made, units):
        what = f"units is {units}; the weight of shape {weight.shape} implies {made}"
        raise data.error(what, "units")
    made = units if made is None else made
    known = data.shape is not None and made is not None
    return [*data.shape[:-1], made] if known and data.shape else None, made


def batch_matmul_shape(x: Tensor, y: Tensor, a: dict[str, Any]) -> list[Any] | None:
    """Infer the shape of a batch of matrix products, either operand transposed if `a` says so."""
    x.rank(3)
    y.rank(3)
    if x.shape is None or y.shape is None:
        return None
    rows, inner = x.shape[:0:-1] if a["transpose_a"] else x.shape[1:]
    other, columns = y.shape[:0:-1] if a["transpose_b"] else y.shape[1:]
    if differ(inner, other):
        shapes = f"{x.name} of shape {x.shape} and {y.name} of shape {y.shape}"
        raise y.error(f"{shapes} have inner sizes {inner} and {other}")
    batches = x.shape[0], y.shape[0]
    if differ(*batches) and 1 not in batches:
        raise y.error(f"{x.name} has {batches[0]} matrices, {y.name} {batches[1]}")
    one = isinstance(batches[0], int) and batches[0] == 1
    return [batches[1] if one else batches[0], rows, columns]
