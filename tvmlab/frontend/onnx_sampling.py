"""Converters of operators that sample images at computed places."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from .onnx_graphs import Attributes, GraphImporter, Inputs, const

__all__ = ["SAMPLING"]


def _corners(image: te.Tensor, n: Any, c: Any, y: Any, x: Any) -> list[Any]:
    """Return the four neighbours of a place, times their weights; zero outside of the image."""
    sides = []
    for place, size in zip((y, x), image.shape[2:], strict=True):
        # Places far outside, and NaN, could not be converted to integers.
        place = tirx.max(tirx.min(place, size.astype(image.dtype) + 1.0), -2.0)
        low = tirx.floor(place)
        first = low.astype("int64")
        sides.append([(first, 1.0 - (place - low), size), (first + 1, place - low, size)])
    found = []
    for row, up, height in sides[0]:
        for column, left, width in sides[1]:
            inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
            value = tirx.if_then_else(inside, image(n, c, row, column), 0.0)
            found.append(value * (up * left))
    return found


def _roi_align(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Average or maximize samples in the cells of regions."""
    x, rois, batches = inputs[0:3]
    scale, ratio = attributes.get("spatial_scale", 1.0), attributes.get("sampling_ratio", 0)
    cells = attributes.get("output_height", 1), attributes.get("output_width", 1)
    mode = attributes.get("coordinate_transformation_mode", b"half_pixel")
    half = importer.opset >= 16 and mode == b"half_pixel"
    most = attributes.get("mode", b"avg") == b"max"
    if most and not ratio:
        raise importer.unsupported("with mode max and no sampling_ratio", "set sampling_ratio")
    emit, (images, channels, *size) = importer.bb.emit, importer.known_sizes(x)
    checked = emit(op.take(const(np.arange(images)), batches, 0))
    number = emit(op.expand_dims(op.astype(checked, str(rois.ty.dtype)), 1))
    regions = emit(op.concat([number, rois], 1))

    def body(image: te.Tensor, regions: te.Tensor) -> te.Tensor:
        def element(r: Any, c: Any, *cell: Any) -> Any:
            places, axes, inside = [], [], []
            for k in range(2):
                first, last = (
                    regions(r, at) * scale - (0.5 if half else 0.0) for at in (2 - k, 4 - k)
                )
                length = last - first if half else tirx.max(last - first, 1.0)
                step = length / float(cells[k])
                count = tirx.const(ratio, "int32") if ratio else tirx.ceil(step).astype("int32")
                axes.append(axis := te.reduce_axis((0, count), "yx"[k]))
                # The bounds below are steps, so a place must be rounded as others round it.
                part = (axis.var.astype(image.dtype) + 0.5) * step / count.astype(image.dtype)
                place = first + cell[k].astype(image.dtype) * step + part
                inside += [place >= -1.0, place <= float(size[k])]
                places.append(tirx.max(tirx.min(place, float(size[k] - 1)), 0.0))
            corners = _corners(image, regions(r, 0).astype("int64"), c, *places)
            value = functools.reduce(tirx.max if most else (lambda a, b: a + b), corners)
            value = tirx.if_then_else(tirx.all(*inside), value, 0.0)
            if most:
                return te.max(value, axes)
            number = tirx.max(axes[0].dom.extent * axes[1].dom.extent, 1)
            return te.sum(value / number.astype(image.dtype), axes)

        return te.compute((regions.shape[0], channels, *cells), element)

    return importer.bb.emit_te(body, x, regions, primfunc_name_hint="roi_align")


def _deform_conv(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Sample the image at the places of each tap, and multiply by the weights."""
    x, weight, offset, bias, mask = inputs[0:5]
    if x.ty.ndim != 4:
        raise importer.unsupported("of other than two spatial dimensions", "use images")
    emit, (images, channels, *size) = importer.bb.emit, importer.known_sizes(x)
    filters, depth, *kernel = importer.known_sizes(weight)
    strides, dilations = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    pads, group = attributes.get("pads", [0] * 4), attributes.get("group", 1)
    parts, taps = attributes.get("offset_group", 1), kernel[0] * kernel[1]
    out = [
        (size[k] + pads[k] + pads[k + 2] - (kernel[k] - 1) * dilations[k] - 1) // strides[k] + 1
        for k in range(2)
    ]
    fits = importer.known_sizes(offset) == [images, 2 * parts * taps, *out]
    fits &= mask is None or importer.known_sizes(mask) == [images, parts * taps, *out]
    if not fits or channels % parts or depth * group != channels or filters % group:
        raise importer.unsupported("with operands whose sizes do not fit", "export it again")

    def body(image: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, tap: Any, *at: Any) -> Any:
            line = c // (channels // parts) * taps + tap
            steps = tap // kernel[1], tap % kernel[1]
            places = [
                (at[k] * strides[k] - pads[k] + steps[k] * dilations[k]).astype(image.dtype)
                + offset(n, 2 * line + k, *at)
                for k in range(2)
            ]
            value = sum(_corners(image, n, c, *places))
            return value * mask[0](n, line, *at) if mask else value

        return te.compute((images, channels, taps, *out), element)

    given = [x, offset] if mask is None else [x, offset, mask]
    columns = importer.bb.emit_te(body, *given, primfunc_name_hint="deform_conv")
    columns = emit(op.reshape(columns, [images, group, depth * taps, out[0] * out[1]]))
    rows = emit(op.reshape(weight, [group, filters // group, depth * taps]))
    made = emit(op.reshape(emit(op.matmul(rows, columns)), [images, filters, *out]))
    return made if bias is None else op.add(made, op.reshape(bias, [1, filters, 1, 1]))


#: The converters of this module.
SAMPLING: dict[str, Callable[..., relax.Expr]] = {
    "DeformConv": _deform_conv,
    "RoiAlign": _roi_align,
}
