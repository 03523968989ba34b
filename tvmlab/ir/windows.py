"""Shapes of what slides a window: convolutions, transposed convolutions, pooling.

They follow Relay's `Conv2DRel`, `Conv2DTransposeRel` (src/relay/op/nn/convolution.h) and
`Pool2DRel` (src/relay/op/nn/pooling.cc), for one, two or three spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ..errors import ShapeError
from .types import Tensor, differ


def by_axis(operand: Tensor, layout: str, letters: str) -> dict[str, Any]:
    """Name an operand's sizes by a layout's letters; None for each that is unknown.

    Raises
    ------
    ShapeError
        If the layout is not made of these letters, or the operand has another number of axes.
    """
    if sorted(layout) != sorted(letters):
        raise ShapeError(
            f'layout "{layout}" is not understood: it has to be an order of {letters}.',
            where=operand.where,
        )
    operand.rank(len(layout))
    return dict(zip(layout, operand.shape or [None] * len(layout), strict=True))


def padding(given: Sequence[int], spatial: int, call: str) -> list[tuple[int, int]]:
    """Give the padding before and after each spatial axis.

    Parameters
    ----------
    given : sequence of int
        One for all, one for each axis, or all before and then all after.

    Raises
    ------
    ShapeError
        If there are more or fewer, or one is negative.
    """
    where = f"{call}, attribute padding"
    if any(size < 0 for size in given):
        raise ShapeError(f"padding {list(given)} has a negative size", where=where)
    if len(given) == 1:
        return [(given[0], given[0])] * spatial
    if len(given) == spatial:
        return [(size, size) for size in given]
    if len(given) == 2 * spatial:
        return list(zip(given[:spatial], given[spatial:], strict=True))
    raise ShapeError(
        f"padding {list(given)} has {len(given)} sizes; 1, {spatial} or {2 * spatial} are needed",
        where=where,
    )


def steps(given: Sequence[int], spatial: int, call: str, name: str) -> list[int]:
    """Give one positive number for each spatial axis.

    Raises
    ------
    ShapeError
        If there are more or fewer, or one is not positive.
    """
    found = list(given) * spatial if len(given) == 1 else list(given)
    if len(found) != spatial or any(size < 1 for size in found):
        raise ShapeError(
            f"{name} is {list(given)}; {spatial} positive numbers are needed",
            where=f"{call}, attribute {name}",
        )
    return found


def kernel(weight: Tensor, sizes: dict[str, Any], spatial: str, a: dict[str, Any]) -> list[Any]:
    """Give the kernel's size along each spatial axis, from the weight and from the attribute.

    Raises
    ------
    ShapeError
        If ``kernel_size`` disagrees with the weight.
    """
    found = [sizes[axis] for axis in spatial]
    if a["kernel_size"] is None:
        return found
    given = steps(a["kernel_size"], len(spatial), weight.call, "kernel_size")
    if any(differ(x, y) for x, y in zip(found, given, strict=True)):
        raise ShapeError(
            f"kernel_size is {given}; the weight of shape {weight.shape} has {found}",
            where=f"{weight.call}, attribute kernel_size",
        )
    return given


def channels(weight: Tensor, derived: Any, a: dict[str, Any]) -> Any:
    """Give the number of output channels, from the weight and from the attribute.

    Raises
    ------
    ShapeError
        If ``channels`` disagrees with the weight.
    """
    if a["channels"] is not None and differ(derived, a["channels"]):
        raise ShapeError(
            f"channels is {a['channels']}; the weight of shape {weight.shape} makes {derived}",
            where=f"{weight.call}, attribute channels",
        )
    return derived if derived is not None else a["channels"]


def arrange(data: Tensor, sizes: dict[str, Any], layout: str) -> list[Any] | None:
    """Put sizes into a layout's order; None where one of them is unknown.

    Raises
    ------
    ShapeError
        If a size is not positive: the window does not fit.
    """
    found = [sizes[axis] for axis in layout]
    if any(isinstance(size, int) and size < 1 for size in found):
        raise ShapeError(
            f"the result would have shape {found}: the window is larger than the padded data",
            where=data.where,
        )
    return None if any(size is None for size in found) else found


def convolution(
    data: Tensor, weight: Tensor, spatial: str, a: dict[str, Any]
) -> tuple[list[Any] | None, Any]:
    """Infer a convolution's result.

    Parameters
    ----------
    data, weight : Tensor
        The operands.
    spatial : str
        The layouts' letters of the spatial axes, ``"HW"`` in two dimensions.
    a : dict
        Relay's attributes (`Conv2DAttrs`).

    Returns
    -------
    tuple of (list or None) and (int or PrimExpr or None)
        The shape, and the number of output channels; None for what is unknown.

    Raises
    ------
    ShapeError
        If shapes, groups and attributes do not fit each other.
    """
    n, groups = len(spatial), a["groups"]
    x = by_axis(data, a["data_layout"], "NC" + spatial)
    w = by_axis(weight, a["kernel_layout"], "OI" + spatial)
    strides = steps(a["strides"], n, data.call, "strides")
    dilation = steps(a["dilation"], n, data.call, "dilation")
    if groups < 1 or (isinstance(x["C"], int) and x["C"] % groups):
        raise ShapeError(
            f"groups is {groups}; the data has {x['C']} channels",
            where=f"{data.call}, attribute groups",
        )
    if depthwise(x["C"], w["O"], groups):
        made = times(w["O"], w["I"])
    else:
        made = w["O"]
        if isinstance(x["C"], int) and differ(x["C"] // groups, w["I"]):
            raise ShapeError(
                f"weight has {w['I']} input channels; the data of shape {data.shape} "
                f"has {x['C']} in {groups} groups",
                where=weight.where,
            )
    out = {"N": x["N"], "C": channels(weight, made, a)}
    window = zip(
        spatial,
        kernel(weight, w, spatial, a),
        strides,
        dilation,
        padding(a["padding"], n, data.call),
        strict=True,
    )
    for axis, size, stride, step, pads in window:
        known = x[axis] is not None and size is not None
        reach = (size - 1) * step + 1 if known else None
        out[axis] = (x[axis] + sum(pads) - reach) // stride + 1 if known else None
    return arrange(data, out, a["out_layout"] or a["data_layout"]), out["C"]


def depthwise(inputs: Any, outer: Any, groups: int) -> bool:
    """Say whether Relay takes a weight's O for the input channels and I for a multiplier."""
    return groups > 1 and bool(isinstance(inputs, int) and inputs == outer == groups)


def times(a: Any, b: Any) -> Any:
    """Multiply two sizes; None where one is unknown."""
    return None if a is None or b is None else a * b


def transposed(
    data: Tensor, weight: Tensor, spatial: str, a: dict[str, Any]
) -> tuple[list[Any] | None, Any]:
    """Infer a transposed convolution's result; parameters and result as in `convolution`.

    Raises
    ------
    ShapeError
        If shapes, groups and attributes do not fit each other.
    """
    n, groups = len(spatial), a["groups"]
    x = by_axis(data, a["data_layout"], "NC" + spatial)
    w = by_axis(weight, a["kernel_layout"], "OI" + spatial)
    strides = steps(a["strides"], n, data.call, "strides")
    dilation = steps(a["dilation"], n, data.call, "dilation")
    if groups < 1:
        raise ShapeError(f"groups is {groups}", where=f"{data.call}, attribute groups")
    if differ(x["C"], w["I"]):
        raise ShapeError(
            f"weight has {w['I']} input channels; the data of shape {data.shape} has {x['C']}",
            where=weight.where,
        )
    out = {"N": x["N"], "C": channels(weight, times(w["O"], groups), a)}
    window = zip(
        spatial,
        kernel(weight, w, spatial, a),
        strides,
        dilation,
        padding(a["padding"], n, data.call),
        padding(a["output_padding"], n, data.call),
        strict=True,
    )
    for axis, size, stride, step, pads, more in window:
        known = x[axis] is not None and size is not None
        full = (x[axis] - 1) * stride + (size - 1) * step + 1 if known else None
        out[axis] = full - sum(pads) + more[0] if full is not None else None
    return arrange(data, out, a["out_layout"] or a["data_layout"]), out["C"]


def pooling(data: Tensor, spatial: str, a: dict[str, Any]) -> list[Any] | None:
    """Infer the shape of a pooling's result; None where it is unknown.

    Raises
    ------
    ShapeError
        If the shape and attributes do not fit each other.
    """
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
    return arrange(data, out, a["out_layout"] or a["layout"])


def pooled(length: Any, reach: int, stride: int, pads: tuple[int, int], ceil_mode: bool) -> Any:
    """Count the windows along an axis.

    Parameters
    ----------
    length : int or tvm.tirx.PrimExpr
        The data's size.
    reach : int
        The window's, dilation and all.
    stride : int
        From one window to the next.
    pads : tuple of int
        Padding before and after.
    ceil_mode : bool
        Whether a last window that is not full counts; it does not where it begins in the padding
        after the data.

    Notes
    -----
    Relay's `Pool2DRel` counts a window of padding too; Relax (0.27), ONNX Runtime and PyTorch do
    not, and a network of theirs keeps its shapes.
    """
    rest = length + sum(pads) - reach
    if not ceil_mode:
        return rest // stride + 1
    count = (rest + stride - 1) // stride + 1
    if pads[1] + stride <= reach:  # the last window is too long to begin there
        return count
    outside = (count - 1) * stride >= length + pads[0]
    if isinstance(length, int):
        return count - 1 if outside else count
    return tirx.if_then_else(outside, count - 1, count)


def pooled_size(
    length: int, reach: int, stride: int, pads: tuple[int, int], ceil_mode: bool, call: str
) -> int:
    """Give `pooled`, insisting that a window fits.

    Raises
    ------
    ShapeError
        If not one does.
    """
    count = int(pooled(length, reach, stride, pads, ceil_mode))
    if count < 1:
        raise ShapeError("the window is larger than the padded data", where=f"{call}, operand data")
    return count
