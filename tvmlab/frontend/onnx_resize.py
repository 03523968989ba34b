"""Resize and Upsample, for which upstream lacks modes: one matrix or index table for each axis.

Upstream scales by the ratio of the sizes, and has no antialiasing. Where that differs from ONNX,
each axis is multiplied by the matrix of its interpolation, which is exact in every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.relax import op

from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of

__all__ = ["RESIZE"]

Floats = npt.NDArray[np.float64]


def _coordinates(n: int, out: int, scale: float, mode: str, roi: Sequence[float]) -> Floats:
    """Return the place in an axis of `n` of each of the `out` results."""
    x, width = np.arange(out, dtype="float64"), scale * n
    if mode == "align_corners":
        return x * 0 if width == 1 else x * (n - 1) / (width - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        step = 0 if width == 1 else (end - start) * (n - 1) / (width - 1)
        return start * (n - 1) + (x * step if width != 1 else x * 0 + (end - start) * (n - 1) / 2)
    if mode == "pytorch_half_pixel" and width == 1:
        return x - 0.5
    offset = n / 2 * (1 - out / width) if mode == "half_pixel_symmetric" else 0
    return offset + (x + 0.5) / scale - 0.5


def _nearest(x: Floats, mode: str) -> Floats:
    ways: dict[str, Callable[[Floats], Floats]] = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return ways[mode](x)


def _cubic(a: float) -> Callable[[Floats], Floats]:
    def kernel(x: Floats) -> Floats:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0))

    return kernel


def _matrix(n: int, x: Floats, scale: float, cubic: float | None, how: Attributes) -> Floats:
    """Return the weights of the `n` inputs for each result, of one row each."""
    wide = min(scale, 1.0) if how.get("antialias") else 1.0
    kernel = (lambda v: np.clip(1 - v, 0, None)) if cubic is None else _cubic(cubic)
    reach = int(np.ceil((1 if cubic is None else 2) / wide)) + 1
    taps = np.floor(x)[:, None].astype(int) + np.arange(-reach, reach + 1)
    weights = kernel(np.abs(taps - x[:, None]) * wide)
    if how.get("exclude_outside"):
        weights = np.where((taps >= 0) & (taps < n), weights, 0)
    if how.get("antialias") or how.get("exclude_outside"):
        weights /= weights.sum(axis=1, keepdims=True)
    made = np.zeros((len(x), n))
    np.add.at(made, (np.arange(len(x))[:, None], np.clip(taps, 0, n - 1)), weights)
    return made


def _plan(
    importer: GraphImporter, inputs: Inputs, attributes: Attributes, shape: list[int]
) -> tuple[list[int], list[int], list[float], list[float]]:
    """Return the axes, their new sizes and scales, and their regions of interest."""
    roi, scales, sizes = (None if x is None else importer.value(x) for x in inputs[1:4])
    rank = len(shape)
    axes = [axis % rank for axis in attributes.get("axes", range(rank))]
    region = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else list(roi)
    if sizes is None or not sizes.size:
        if scales is None or len(scales) != len(axes):
            raise importer.unsupported("with scales computed at run time", "make them constants")
        factors = [float(scale) for scale in scales]
        made = [int(scale * shape[axis]) for scale, axis in zip(factors, axes, strict=True)]
        return axes, made, factors, region
    made = [int(size) for size in sizes]
    factors = [size / shape[axis] for size, axis in zip(made, axes, strict=True)]
    policy = attributes.get("keep_aspect_ratio_policy", b"stretch")
    if policy != b"stretch":
        factor = (min if policy == b"not_larger" else max)(factors)
        factors = [factor] * len(axes)
        made = [int(factor * shape[axis] + 0.5) for axis in axes]
    return axes, made, factors, region


def _exact_upstream(
    attributes: Attributes, shape: list[int], made: list[int], scales: list[float], mode: str
) -> bool:
    """Return whether upstream's operator, which scales by the ratio of sizes, is the same."""
    if attributes.get("antialias") or attributes.get("exclude_outside") or "axes" in attributes:
        return False
    ratios = [new / old for new, old in zip(made, shape, strict=True)]
    common = attributes.get("coordinate_transformation_mode", b"half_pixel")
    return (
        bool(np.allclose(ratios, scales, rtol=1e-6))
        and mode in ("nearest", "linear")
        and common in (b"half_pixel", b"align_corners", b"asymmetric")
        and len(shape) == 4
        and made[:2] == shape[:2]
        and min(made) > 1
    )


def _resize(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    if importer.opset < 11:  # the inputs are the tensor and its scales
        inputs = [inputs[0], None, inputs[1], None]
        same = {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
        attributes = {**attributes, **same}
    x = inputs[0]
    shape = sizes_of(x)
    if shape is None or None in shape:
        if attributes.get("antialias") or attributes.get("exclude_outside"):
            raise importer.unsupported("of unknown sizes", "give `shapes` to load")
        return importer.by_upstream("Resize", inputs, attributes)
    known = [size for size in shape if size is not None]
    padded = [*inputs, *[None] * 4][:4]
    axes, made, scales, region = _plan(importer, padded, attributes, known)
    mode = attributes.get("mode", b"nearest").decode()
    if importer.opset >= 11 and _exact_upstream(attributes, known, made, scales, mode):
        return importer.by_upstream("Resize", inputs, attributes)
    common = attributes.get("coordinate_transformation_mode", b"half_pixel").decode()
    dtype = str(x.ty.dtype)
    if mode != "nearest" and "float" not in dtype:
        raise importer.unsupported(f"of {dtype} by interpolation", "convert it to float32 before")
    a = attributes.get("cubic_coeff_a", -0.75) if mode == "cubic" else None
    emit = importer.bb.emit
    outside: Any = np.zeros((), bool)
    for i, (axis, out, scale) in enumerate(zip(axes, made, scales, strict=True)):
        n = known[axis]
        roi = region[i], region[i + len(axes)]
        places = _coordinates(n, out, scale, common, roi)
        if common == "tf_crop_and_resize":
            beyond = (places < 0) | (places > n - 1)
            view = [1] * len(known)
            view[axis] = out
            outside = outside | beyond.reshape(view)
        elif out == n and np.isclose(scale, 1):
            continue
        if mode == "nearest":
            nearest = _nearest(
                places, attributes.get("nearest_mode", b"round_prefer_floor").decode()
            )
            index = const(np.clip(nearest, 0, n - 1).astype("int64"))
            x = emit(op.take(x, index, axis))
            continue
        matrix = _matrix(n, places, scale, a, attributes)
        order = [*(k for k in range(len(known)) if k != axis), axis]
        x = emit(op.matmul(emit(op.permute_dims(x, order)), const(matrix.T.astype(dtype))))
        x = emit(op.permute_dims(x, [int(k) for k in np.argsort(order)]))
    if outside.any():
        value = const(np.array(attributes.get("extrapolation_value", 0.0), dtype))
        x = emit(op.where(const(outside), value, x))
    return x


def _upsample(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    scales = inputs[1] if importer.opset >= 9 else const(np.array(attributes["scales"], "float32"))
    opset, importer.opset = importer.opset, 10
    try:
        return _resize(importer, [inputs[0], scales], attributes)
    finally:
        importer.opset = opset


#: The converters of this module.
RESIZE = {"Resize": _resize, "Upsample": _upsample}
