"""Converters of layers and rearrangements that upstream lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from .onnx_graphs import Attributes, GraphImporter, Inputs, const

__all__ = ["LAYERS"]


def _dropout(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Return the input and a mask that keeps everything, as at inference."""
    x, ratio, training = inputs[0:3]
    mode = False if training is None else importer.value(training)
    if mode is None:
        raise importer.unsupported("with training_mode computed at run time", "set it to false")
    rate = 0.5 if ratio is None else importer.value(ratio)
    if mode and (rate is None or rate != 0):
        raise importer.unsupported("in training", "export the model for inference")
    dtype = "bool" if importer.opset >= 10 else str(x.ty.dtype)
    return relax.Tuple([x, op.ones(x.ty.shape, dtype)])


def _batch_norm(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Normalize by the batch's own statistics in training, and update the running ones."""
    if not attributes.get("training_mode"):
        return importer.by_upstream("BatchNormalization", inputs, attributes)
    x, *parameters, mean, variance = inputs[0:5]
    emit = importer.bb.emit
    axes = [axis for axis in range(x.ty.ndim) if axis != 1]
    own = [emit(op.mean(x, axes)), emit(op.variance(x, axes))]
    flags = {name: value for name, value in attributes.items() if name != "training_mode"}
    y = importer.by_upstream("BatchNormalization", [x, *parameters, *own], flags)
    y = emit(y) if isinstance(y.ty, relax.TensorType) else emit(relax.TupleGetItem(y, 0))
    kept = const(np.float32(attributes.get("momentum", 0.9)))
    new = const(np.float32(1) - np.float32(attributes.get("momentum", 0.9)))
    pairs = zip((mean, variance), own, strict=True)
    running = [emit(op.add(op.multiply(a, kept), op.multiply(b, new))) for a, b in pairs]
    return relax.Tuple([y, *running])


def _conv_transpose(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Turn an output shape into padding, because upstream ignores it."""
    if "output_shape" not in attributes:
        return importer.by_upstream("ConvTranspose", inputs, attributes)
    sizes = importer.known_sizes(inputs[0])[2:]
    kernel = attributes.get("kernel_shape") or importer.known_sizes(inputs[1])[2:]
    ones = [1] * len(sizes)
    strides, dilations = (attributes.get(name, ones) for name in ("strides", "dilations"))
    extra = list(attributes.get("output_padding", [0] * len(sizes)))
    before, after = [], []
    for i, wanted in enumerate(attributes["output_shape"][-len(sizes) :]):
        reach = strides[i] * (sizes[i] - 1) + (kernel[i] - 1) * dilations[i] + 1
        total = reach + extra[i] - wanted
        extra[i] += max(-total, 0)
        total = max(total, 0)
        upper = attributes.get("auto_pad") == b"SAME_UPPER"
        before.append(total // 2 if upper else total - total // 2)
        after.append(total - before[-1])
    kept = {k: v for k, v in attributes.items() if k not in ("output_shape", "auto_pad")}
    made = {**kept, "pads": [*before, *after], "output_padding": extra}
    return importer.by_upstream("ConvTranspose", inputs, made)


def _col2im(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Add up overlapping blocks: a transposed convolution by the unit vectors."""
    x, image, block = inputs
    image, block = importer.value(image), importer.value(block)
    if image is None or block is None:
        raise importer.unsupported("with a shape computed at run time", "make it a constant")
    batch, rows, _ = importer.known_sizes(x)
    rank, count = len(image), int(np.prod(block))
    strides, dilations = (attributes.get(n, [1] * rank) for n in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    reach = (block - 1) * dilations + 1
    places = (image + np.add(pads[:rank], pads[rank:]) - reach) // strides + 1
    weight = np.tile(np.eye(count), (rows // count, 1)).reshape(rows, 1, *block)
    x = importer.bb.emit(op.reshape(x, [batch, rows, *map(int, places)]))
    how = {"strides": strides, "dilations": dilations, "pads": pads, "group": rows // count}
    how["output_shape"] = [int(size) for size in image]
    if any(pads):
        covered = (places - 1) * strides + reach - np.add(pads[:rank], pads[rank:])
        how["output_padding"] = [int(size) for size in image - covered]
        del how["output_shape"]
    return _conv_transpose(importer, [x, const(weight.astype(str(x.ty.dtype))), None], how)


def _space_to_depth(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, block = inputs[0], attributes["blocksize"]
    n, c, h, w = importer.known_sizes(x)
    split = op.reshape(x, [n, c, h // block, block, w // block, block])
    order = [0, 1, 3, 5, 2, 4] if attributes.get("mode") == b"CRD" else [0, 3, 5, 1, 2, 4]
    moved = op.permute_dims(split, order)
    return op.reshape(moved, [n, c * block * block, h // block, w // block])


def _instance_norm(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Keep the operator, for which there are loops; upstream takes it apart."""
    x, scale, bias = inputs
    if x.ty.ndim < 3 or str(x.ty.dtype) != "float32":
        return importer.by_upstream("InstanceNormalization", inputs, attributes)
    axes = [*range(2, x.ty.ndim)]
    return op.nn.instance_norm(x, scale, bias, 1, axes, attributes.get("epsilon", 1e-5))


def _lp_normalization(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, axis, emit = inputs[0], attributes.get("axis", -1), importer.bb.emit
    if attributes.get("p", 2) == 1:
        norm = emit(op.sum(op.abs(x), axis, True))
    else:
        norm = emit(op.sqrt(op.sum(op.multiply(x, x), axis, True)))
    nil, one = (const(np.array(number, str(x.ty.dtype))) for number in (0, 1))
    empty = emit(op.equal(norm, nil))
    return op.where(empty, nil, op.divide(x, op.where(empty, one, norm)))


def _eye_like(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    dtype = attributes.get("dtype")
    dtype = upstream.get_type(dtype) if dtype else str(inputs[0].ty.dtype)
    rows, columns = importer.known_sizes(inputs[0])
    return const(np.eye(rows, columns, attributes.get("k", 0), dtype=dtype))


def _line(importer: GraphImporter, values: Any, axis: int, rank: int) -> Any:
    """Reshape a vector so that it lies along an axis."""
    return importer.bb.emit(op.reshape(values, [-1 if k == axis else 1 for k in range(rank)]))


def _moved(importer: GraphImporter, x: Any, places: Any, axis: int) -> Any:
    """Take the elements of `x` at `places` along an axis; `places` broadcasts to the result."""
    emit = importer.bb.emit
    shape = importer.known_sizes(x)
    shape[axis] = importer.known_sizes(places)[axis]
    return emit(op.gather_elements(x, emit(op.broadcast_to(places, shape)), axis))


def _reverse_sequence(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, lengths = inputs
    time, batch = attributes.get("time_axis", 0), attributes.get("batch_axis", 1)
    shape, emit = importer.known_sizes(x), importer.bb.emit
    steps = _line(importer, const(np.arange(shape[time])), time, len(shape))
    ends = _line(importer, emit(op.astype(lengths, "int64")), batch, len(shape))
    back = op.subtract(op.subtract(ends, const(np.int64(1))), steps)
    places = emit(op.where(op.less(steps, ends), back, steps))
    return _moved(importer, x, places, time)


def _tensor_scatter(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Write each sequence's update into its cache, from a place of its own on."""
    cache, update, starts = inputs[0:3]
    shape, emit = importer.known_sizes(cache), importer.bb.emit
    axis = attributes.get("axis", -2) % len(shape)
    length, count = shape[axis], importer.known_sizes(update)[axis]
    if starts is None:
        starts = const(np.zeros(shape[0], "int64"))
    steps = _line(importer, const(np.arange(length)), axis, len(shape))
    starts = _line(importer, emit(op.astype(starts, "int64")), 0, len(shape))
    places = emit(op.subtract(steps, starts))
    if attributes.get("mode") == b"circular":
        places = emit(op.floor_mod(places, const(np.int64(length))))
    low, high = const(np.int64(0)), const(np.int64(count))
    inside = emit(op.logical_and(op.greater_equal(places, low), op.less(places, high)))
    moved = _moved(importer, update, emit(op.clip(places, 0, count - 1)), axis)
    return op.where(inside, moved, cache)


def _suppression(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Suppress above the threshold; upstream also suppresses at the threshold itself."""
    boxes, scores, most, overlap, *rest = inputs[0:5]
    limits = [None if one is None else importer.value(one) for one in (most, overlap, *rest)]
    given = zip((most, overlap, *rest), limits, strict=True)
    if any(one is not None and value is None for one, value in given):  # upstream takes defaults
        raise importer.unsupported("with limits computed at run time", "make them constants")
    value = np.zeros(1, "float32") if limits[1] is None else limits[1].astype("float32")
    above = const(np.nextafter(value, np.float32(np.inf)))
    return importer.by_upstream(
        "NonMaxSuppression", [boxes, scores, most, above, *rest], attributes
    )


def _top_k(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Select from 16-bit and unsigned integers as int64, because upstream cannot sort them."""
    x, emit, k = inputs[0], importer.bb.emit, inputs[1]
    if importer.opset < 11 and k is not None:  # upstream reads only the attribute of opset 1
        value = importer.value(k)
        if value is None:
            raise importer.unsupported("with k computed at run time", "make it a constant")
        inputs, attributes = [x], {**attributes, "k": int(value.reshape(()))}
    dtype = str(x.ty.dtype)
    if dtype not in ("uint16", "uint32", "uint64", "int16"):
        return importer.by_upstream("TopK", inputs, attributes)
    # Without its highest bit, uint64 has the order of int64.
    flip = const(np.int64(-(2**63) if dtype == "uint64" else 0))
    wide = emit(op.bitwise_xor(emit(op.astype(x, "int64")), flip))
    made = emit(importer.by_upstream("TopK", [wide, *inputs[1:]], attributes))
    values, places = (emit(relax.TupleGetItem(made, i)) for i in range(2))
    return relax.Tuple([op.astype(emit(op.bitwise_xor(values, flip)), dtype), places])


#: The converters of this module.
LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm,
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "InstanceNormalization": _instance_norm,
    "LpNormalization": _lp_normalization,
    "NonMaxSuppression": _suppression,
    "ReverseSequence": _reverse_sequence,
    "SpaceToDepth": _space_to_depth,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}
