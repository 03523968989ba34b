"""What a region computes, layer by layer, with the functions that define quantized arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvmlab.npu import layers
from tvmlab.npu.isa import PoolKind, Rounding
from tvmlab.npu.layers import Region, Rescale
from tvmlab.qnn import arithmetic, fixed_point, frameworks, numbers

Array = Any


def run(region: Region, inputs: list[Array]) -> list[Array]:
    """Compute a region's results from its inputs, both in their own layouts."""
    known = dict(zip(region.inputs, inputs, strict=True))
    for layer in region.layers:
        data = [known[name] for name in layer.inputs]
        out = region.values[layer.output]
        if isinstance(layer, layers.View):
            known[layer.output] = data[0].reshape(out.shape)
            continue
        images = [nhwc(x, region.values[name]) for x, name in zip(data, layer.inputs, strict=True)]
        found = STEPS[type(layer)](layer, images, out.nhwc).astype(out.dtype.name)
        known[layer.output] = back(found, out)
    return [known[name] for name in region.outputs]


def nhwc(x: Array, value: layers.Value) -> Array:
    if value.layout == "NCHW":
        x = x.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x).reshape(value.nhwc)


def back(x: Array, value: layers.Value) -> Array:
    if value.layout == "NCHW":
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x).reshape(value.shape)


def convolution(layer: layers.Convolution, images: list[Array], size: Any) -> Array:
    x, (top, left, bottom, right) = images[0], layer.pads
    x = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=layer.pad_value)
    w = layer.weights[:, :, None] if layer.depthwise else layer.weights
    sums = arithmetic.conv2d(
        x, w, 0, 0, 1.0, 1.0, strides=layer.strides, dilation=layer.dilation,
        groups=x.shape[3] if layer.depthwise else 1, data_layout="NHWC", kernel_layout="HWIO",
    )  # fmt: skip
    sums = (sums.astype(np.int64) + layer.bias).astype(np.int32)
    return rescaled(np.clip(sums, layer.sum_low, layer.sum_high), layer.rescale)[
        :, : size[1], : size[2]
    ]


def rescaled(sums: Array, rescale: Rescale) -> Array:
    x, way = sums.astype(np.int64), rescale.rounding
    if way is Rounding.ONNX:
        x = np.rint(x.astype(np.float32) * rescale.multipliers).astype(np.float64)
    elif way is Rounding.TFLITE_FLOAT64:
        x = numbers.half_away(x.astype(np.float64) * rescale.multipliers)
    else:
        x = stepped(x, rescale.multipliers, rescale.shifts, way)
        if rescale.low < -(1 << 15):
            x = (x + rescale.zero_point).astype(np.int32).astype(np.int64) - rescale.zero_point
    return np.clip(x + rescale.zero_point, rescale.low, rescale.high)


def stepped(x: Array, multiplier: Array, shift: Array, way: Rounding) -> Array:
    if way is Rounding.NONE:
        return x
    parts = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    return fixed_point.multiply(x, *parts, way.name)


def add(layer: layers.Add, images: list[Array], size: Any) -> Array:
    if layer.out.rounding is Rounding.ONNX:
        ratios = [
            np.array(side.multiplier, np.int32).view(np.float32).astype(np.float64)
            for side in (*layer.sides, layer.out)
        ]
        total = np.float32(ratios[-1])
        for x, ratio in reversed(list(zip(images, ratios, strict=False))):
            total = (x.astype(np.float64) * ratio + total).astype(np.float32)
        return np.clip(np.rint(total), layer.low, layer.high)
    total = np.zeros((), np.int32)
    for x, side in zip(images, layer.sides, strict=True):
        shifted = ((x.astype(np.int64) - side.zero) << layer.left_shift).astype(np.int32)
        side_sum = stepped(shifted.astype(np.int64), side.multiplier, side.shift, side.rounding)
        total = total + side_sum.astype(np.int32)
    found = stepped(
        total.astype(np.int64), layer.out.multiplier, layer.out.shift, layer.out.rounding
    )
    return np.clip(found + layer.out.zero, layer.low, layer.high)


def pool(layer: layers.Pool, images: list[Array], size: Any) -> Array:
    x = images[0].astype(np.int64)
    info, found = np.iinfo(images[0].dtype), np.zeros(size, np.int64)
    (top, left, bottom, right), height, width = layer.pads, x.shape[1], x.shape[2]
    for y, z in np.ndindex(size[1], size[2]):
        rows = [y * layer.strides[0] + i * layer.dilation[0] - top for i in range(layer.kernel[0])]
        cols = [z * layer.strides[1] + i * layer.dilation[1] - left for i in range(layer.kernel[1])]
        taps = [x[:, a, b] for a in rows for b in cols if 0 <= a < height and 0 <= b < width]
        padded = sum(a < height + bottom and b < width + right for a in rows for b in cols)
        if layer.kind is PoolKind.MAX:
            found[:, y, z] = np.max(taps, axis=0) if taps else info.min
            continue
        count = padded if layer.count_pad else len(taps)
        found[:, y, z] = averaged(layer, taps, count) if count else layer.out_zero
    return np.clip(found, info.min, info.max)


def averaged(layer: layers.Pool, taps: list[Array], count: int) -> Array:
    zero = layer.in_zero if layer.kind >= PoolKind.AVERAGE_TFLITE else 0
    total = np.asarray(sum(taps) - zero * len(taps))
    if layer.kind is PoolKind.AVERAGE_TFLITE:
        counts = np.full(total.shape, count)
        return (
            frameworks.average_once(total, counts, layer.multiplier, layer.shift) + layer.out_zero
        )
    if layer.kind is PoolKind.AVERAGE_ONNX:
        scales = np.array([layer.multiplier, layer.shift], np.int32).view(np.float32)
        mean = np.float32(0)
        for tap in taps:
            mean = mean + (tap - layer.in_zero).astype(np.float32) * scales[0]
        mean = mean / np.float32(count) / scales[1]
        return np.rint(mean + np.float32(layer.out_zero)).astype(np.int64)
    total = total + (count - len(taps)) * layer.out_zero
    half = count // 2 if layer.kind is PoolKind.AVERAGE_HALF else 0
    return np.sign(total) * ((np.abs(total) + half) // count)


def mean(layer: layers.Mean, images: list[Array], size: Any) -> Array:
    sums = np.maximum(images[0].astype(np.int64), layer.low).sum((1, 2)) + layer.start
    return rescaled(sums.astype(np.int32).reshape(size), layer.rescale)


STEPS: dict[type, Any] = {
    layers.Convolution: convolution,
    layers.Add: add,
    layers.Pool: pool,
    layers.Mean: mean,
}
