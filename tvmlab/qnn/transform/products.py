"""Integer forms of convolutions, matrix products, averages and constants, with exact int32 sums.

The scale of a product's sums is the product of the operands' scales, and their zero point is 0. An
operator whose sums could leave int32 stays in float. A mean over whole axes is a sum whose scale
is that of its operand divided by the count. Averages of windows are ``qnn.avg_pool2d``.

A batch normalization that is not folded into a convolution is ``gain * x + shift`` per channel: a
depthwise 1x1 convolution with weights of 32767 or -32767 and the scale ``|gain| / 32767``. The
weight times its scale is exactly the gain, so only the shift is rounded, to an int32 in units of
1/32767 of the contribution of one step of x. A gain of zero has the weight zero and other units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ...ir import dialect
from .. import arithmetic, checks, frameworks
from ..checks import Array
from ..fixed_point import INT32
from ..operator import NARROW, OPERATORS
from ..products import sum_parts, sum_range
from . import reading
from .context import Context, Rule, Site
from .values import QuantizedValue, QuantParams, check_sums, known, require

_WEIGHT = 32767
# A shift with a negligible gain is this many units.
_PARTS = 2.0**20
_LARGEST_BIAS = 2.0**29
# Two float32 products of the same scales agree to this relative error.
_SAME = 2.0**-22
_NO_SHAPE = "its weight's shape is not known"
#: The largest distance from the nearest bias to try.
_FAR = 16


def _conv2d(site: Site) -> QuantizedValue:
    """Emit ``qnn.conv2d``, or ``qnn.conv2d_transpose``."""
    ctx, name = site.ctx, site.name.removeprefix("nn.")
    a = shared_attributes(site.call, name)
    data, kernel = a["data_layout"], a["kernel_layout"]
    for layout, letters in ((data, "CHNW"), (kernel, "HIOW"), (a["out_layout"] or data, "CHNW")):
        require("".join(sorted(layout)) == letters, f"its layout is {layout}")
    x, w = ctx.stored(site.call.args[0]), _weight(ctx, site.call.args[1], kernel.index("O"))
    parts = a["groups"] if name == "conv2d_transpose" else 1
    require(parts == 1 or w.scalar, "its weight has a scale per output within each group")
    shape = known(reading.fixed_sizes(site.call.args[1].ty), _NO_SHAPE)
    by_letter = dict(zip(kernel, shape, strict=True))
    a["channels"], a["kernel_size"] = by_letter["O"] * parts, [by_letter["H"], by_letter["W"]]
    rows = None if w.array is None else np.moveaxis(w.array, kernel.index("O"), 0)
    bounds = _bounds(x, w, rows, by_letter["I"] * by_letter["H"] * by_letter["W"])
    expr = _bind_product(site, name, x, w, a)
    exact = ctx.rounding == "TFLITE" and x.dtype != "uint8"
    channel = (a["out_layout"] or data).index("C")
    return QuantizedValue.sums(expr, _scale(x, w, exact), channel, *bounds)


def shared_attributes(call: relax.Call, name: str) -> dict[str, Any]:
    """Return the attributes that a float operator and its quantized one share, except the dtype."""
    attrs, row = call.attrs, OPERATORS[name]
    found = {n: dialect.plain(getattr(attrs, n)) for n in row.attributes if hasattr(attrs, n)}
    found.pop("out_dtype", None)
    layout = found.get("data_layout", found.get("layout"))
    return found | ({"out_layout": ""} if found["out_layout"] == layout else {})


def _weight(ctx: Context, expr: relax.Expr, outputs: int) -> QuantizedValue:
    """Return a weight's integers, with one scale or one for each output."""
    value = ctx.clipped(expr)
    require(value.dtype in NARROW, f"its weight is {value.dtype}")
    by_output = value.scalar or value.axis == outputs
    require(by_output, f"its weight is quantized along axis {value.axis}, not by output")
    return value


def _scale(x: QuantizedValue, w: QuantizedValue, exact: bool) -> Array:
    """Multiply two scales: in float32 like Relay, or exactly like TFLite's convolutions (float64).

    `PopulateConvolutionQuantizationParams` (tensorflow/lite/kernels/kernel_util.cc) multiplies in
    double precision, and convolutions of uint8 in single precision.
    """
    kind = np.float64 if exact else np.float32
    scale = np.asarray(x.scale.astype(kind) * w.scale.astype(kind))
    require(np.all(scale.astype(np.float32) > 0), "the product of its scales is below float32")
    return scale


def _bounds(
    x: QuantizedValue, w: QuantizedValue, rows: Array | None, terms: int
) -> tuple[int, int]:
    """Return bounds of sums of `terms` products; refuse sums that could leave int32.

    `rows` are the constant weights with one row per output, or None if they are not constant.
    """
    low, high = min(x.least - int(x.zero), 0), max(x.most - int(x.zero), 0)  # padding adds 0
    if rows is None:
        most = terms * w.far * max(-low, high)
        least = -most
    else:
        flat = rows.reshape(len(rows), -1).astype(np.int64) - w.zero.reshape(-1, 1)
        lows, highs = sum_range(sum_parts(flat), low, high)
        least, most = int(lows.min(initial=0)), int(highs.max(initial=0))
    check_sums(least, most)
    return least, most


def _bind_product(
    site: Site,
    name: str,
    x: QuantizedValue,
    w: QuantizedValue,
    attributes: dict[str, Any],
    ty: Any = None,
) -> relax.Expr:
    (x_scale, x_zero), (w_scale, w_zero) = site.ctx.params(x), site.ctx.params(w)
    operands = [x.expr, w.expr, x_zero, w_zero, x_scale, w_scale]
    made = dialect.call(f"relax.qnn.{name}", *OPERATORS[name].bind(operands, attributes))
    return site.bind(made, "sums", ty=ty)


def _matmul(site: Site) -> QuantizedValue:
    """Emit ``qnn.dense`` for a constant matrix, else ``qnn.batch_matmul``."""
    ctx, (left, right) = site.ctx, site.call.args
    ranks = int(left.ty.ndim), int(right.ty.ndim)
    x, w = ctx.stored(left), _weight(ctx, right, ranks[1] - 1)
    (a, b), axis = (reading.fixed_sizes(side.ty) for side in (left, right)), site.var.ty.ndim - 1
    if w.array is not None and ranks[1] == 2 and b is not None:
        rows = np.ascontiguousarray(w.array.T)
        return _rows(site, x, replace(w, expr=relax.const(rows, w.dtype), array=rows), b[::-1])
    require(w.scalar, "its second operand is quantized by channel")
    a, b = (known(shape, "its operands' shapes are not constant") for shape in (a, b))
    same = len(a) >= 2 and len(a) == len(b) and a[:-2] == b[:-2]
    require(same, f"its operands of shapes {a} and {b} have different batches")
    bounds = _bounds(x, w, None, b[-2])
    return QuantizedValue.sums(_batches(site, x, w, a, b), _scale(x, w, False), axis, *bounds)


def _rows(site: Site, x: QuantizedValue, w: QuantizedValue, shape: Sequence[int]) -> QuantizedValue:
    """Emit ``qnn.dense``, whose weight of this shape has one row per output."""
    bounds, tflite = _bounds(x, w, w.array, shape[1]), site.ctx.rounding == "TFLITE"
    expr = _bind_product(site, "dense", x, w, {"units": shape[0]})
    axis = int(site.var.ty.ndim) - 1
    value = QuantizedValue.sums(expr, _scale(x, w, tflite), axis, *bounds)
    # LiteRT's fully connected layers multiply in float64 and round once.
    return replace(value, compute="float64") if tflite else value


def _dense(site: Site) -> QuantizedValue:
    """Emit ``qnn.dense`` for Relay's ``nn.dense``."""
    data, weight = site.call.args
    x, w = site.ctx.stored(data), _weight(site.ctx, weight, 0)
    return _rows(site, x, w, known(reading.fixed_sizes(weight.ty), _NO_SHAPE))


def _batch_matmul(site: Site) -> QuantizedValue:
    """Emit ``qnn.batch_matmul`` for Relay's ``nn.batch_matmul``, transposed as in the call."""
    x, w = (site.ctx.stored(arg) for arg in site.call.args)
    turned = {name: bool(site.call.attrs[name]) for name in ("transpose_a", "transpose_b")}
    shape = known(reading.fixed_sizes(site.call.args[1].ty), _NO_SHAPE)
    bounds = _bounds(x, w, None, shape[-1 if turned["transpose_b"] else -2])
    expr = _bind_product(site, "batch_matmul", x, w, turned)
    return QuantizedValue.sums(expr, _scale(x, w, False), 2, *bounds)


def _batches(
    site: Site, x: QuantizedValue, w: QuantizedValue, a: list[int], b: list[int]
) -> relax.Expr:
    """Multiply batches of matrices; a matrix alone is a batch of one."""
    if len(a) > 2:
        w, turned = _before_transpose(site, w, len(b))
        return _bind_product(site, "batch_matmul", x, w, {"transpose_b": turned})

    def reshaped(expr: relax.Expr, after: list[int], dtype: str) -> relax.Expr:
        ty = relax.TensorType(after, dtype)
        return site.ctx.bind(relax.op.reshape(expr, after), ty, "batches")

    x, w = (
        replace(one, expr=reshaped(one.expr, [1, *shape], one.dtype))
        for one, shape in ((x, a), (w, b))
    )
    sums = [a[0], b[1]]
    ty, plain = relax.TensorType([1, *sums], "int32"), {"transpose_b": False}
    return reshaped(_bind_product(site, "batch_matmul", x, w, plain, ty), sums, "int32")


def _before_transpose(site: Site, w: QuantizedValue, rank: int) -> tuple[QuantizedValue, bool]:
    """Return a second operand that was transposed with its numbers of a sum side by side again.

    Also return whether it has to be multiplied transposed.
    """
    axes, source = list(range(rank)), w.expr
    while reading.calls(call := site.ctx.calls.get(source), "permute_dims"):
        own = list(range(rank))[::-1] if call.attrs.axes is None else call.attrs.axes
        axes = [int(own[axis]) % rank for axis in axes]
        source = call.args[0]
    if axes[-2] != rank - 1:
        return w, False
    axes[-2:] = axes[-1], axes[-2]
    if axes == sorted(axes):
        return replace(w, expr=source), True
    shape = known(reading.fixed_sizes(source.ty), _NO_SHAPE)
    ty = relax.TensorType([shape[axis] for axis in axes], w.dtype)
    return replace(w, expr=site.ctx.bind(relax.op.permute_dims(source, axes), ty, "turned")), True


# Averages


#: Averages of windows that can be a whole image, with the letters of the axes.
_WHOLE = {
    "nn.adaptive_avg_pool1d": "W",
    "nn.adaptive_avg_pool2d": "HW",
    "relay.nn.global_avg_pool2d": "HW",
}


def _axes(site: Site) -> tuple[list[int], bool] | None:
    """Return the axes that a call averages over, and whether it keeps them; None for windows."""
    operand, attrs = site.call.args[0], site.call.attrs
    if site.name == "mean":
        ndim = int(operand.ty.ndim)
        given = range(ndim) if attrs.axis is None else attrs.axis
        return [int(i) % ndim for i in given], bool(attrs.keepdims)
    if site.name in _WHOLE:
        layout, shape, sides = str(attrs["layout"]), reading.sizes(site.var.ty), _WHOLE[site.name]
        plain = sorted(layout) == sorted("NC" + sides) and str(attrs["out_layout"]) in ("", layout)
        if plain and reading.same_shape(operand.ty, site.var.ty):
            return [], True  # each window has one value
        axes = [layout.index(side) for side in sides] if plain else []
        whole = axes and shape is not None and all(shape[axis] == 1 for axis in axes)
        require(whole, "its windows depend on the size of the result")
        return axes, True
    # ONNX Runtime computes a window of the whole image as a mean.
    attributes, shape = pooling_attributes(site.call), reading.sizes(operand.ty)
    axes = [attributes["layout"].index(letter) for letter in "HW"]
    whole = (
        site.ctx.rounding == "ONNX"
        and shape is not None
        and [shape[axis] for axis in axes] == attributes["pool_size"]
        and attributes["dilation"] == [1, 1]
        and not any(attributes["padding"])
        and not attributes["out_layout"]
        and site.ctx.operand(operand).dtype in ("int8", "uint8")
    )
    return (axes, True) if whole else None


def _count(operand: relax.Expr, axes: list[int]) -> int:
    counts = [reading.channel_count(operand.ty, axis) or 0 for axis in axes]
    require(all(counts), "the number of values that it averages is not known")
    return int(np.prod(counts, dtype=np.int64))


def _average(site: Site) -> QuantizedValue:
    """Sum at the scale of the mean."""
    found, operand = _axes(site), site.call.args[0]
    axes, keepdims = known(found, "its result is not quantized")
    if not axes:
        return site.ctx.operand(operand)
    value = site.ctx.clipped(operand)
    apart = value.scalar or value.axis not in axes
    require(apart, "it averages over channels with different scales")
    count = _count(operand, axes)
    least, most = value.least * count, value.most * count
    check_sums(least, most)
    scale = np.asarray((value.scale.astype(np.float64) / count).astype(value.scale.dtype))
    require(np.all(scale.astype(np.float32) > 0), "its scale is too small for float32")
    expr = value.expr
    if value.dtype != "int32":
        wide = reading.with_dtype(operand.ty, "int32")
        expr = site.bind(relax.op.astype(expr, "int32"), "wide", ty=wide)
    expr = site.bind(relax.op.sum(expr, axes, keepdims), "sums")
    if value.scalar:
        axis = min(1, max(int(site.var.ty.ndim) - 1, 0))
    else:
        axis = value.axis - (0 if keepdims else sum(other < value.axis for other in axes))
    zero = np.asarray(value.zero * count)
    return QuantizedValue(expr, "int32", scale, zero, axis, least, most, error=value.error)


def _average_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.avg_pool2d``, or a mean with the scale of ONNX Runtime."""
    ctx, found, operand = site.ctx, _axes(site), site.call.args[0]
    if found is None:
        return _windows(site, params)
    mean = ctx.value(site.var)
    if ctx.rounding == "ONNX" and mean.scalar:
        scale, count = ctx.operand(operand).scale, _count(operand, found[0])
        own = frameworks.mean_scale(scale, np.asarray(params.scale, np.float32), count)
        if own > 0:
            made = ctx.requantize_to(replace(mean, scale=own), params)
            return QuantizedValue.of(made, params)
    return mean


def pooling_attributes(call: relax.Call) -> dict[str, Any]:
    """Return Relay's attributes of a call of ``nn.avg_pool2d``, except the rounding."""
    found = shared_attributes(call, "avg_pool2d")
    layouts = {"".join(sorted(found["layout"])), "".join(sorted(found["out_layout"] or "CHNW"))}
    require(layouts == {"CHNW"}, f"its layout is {found['layout']}")
    return found


def _windows(site: Site, params: QuantParams) -> QuantizedValue:
    attributes, value = pooling_attributes(site.call), site.ctx.stored(site.call.args[0])
    same = params.dtype != "int32" and (value.dtype == "int16") == (params.dtype == "int16")
    require(same, f"it averages {value.dtype} into {params.dtype}")
    value.check_operand(params)
    # Relay's roundings truncate the quotient; only the frameworks' roundings round an average.
    attributes["rounding"] = "ONNX" if site.ctx.rounding == "ONNX" else "TFLITE"
    operands = [value.expr, *site.ctx.params(value)]
    return site.call_at("avg_pool2d", operands, attributes, params, value.dtype)


# Batch normalization, and added constants


def _batch_norm(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    """Emit a depthwise convolution and its bias."""
    x, attrs = site.call.args[0], site.call.attrs
    value = site.ctx.clipped(x)
    if params and (site.ctx.rounding != "ONNX" or value.dtype not in ("int8", "uint8")):
        return site.ctx.value(site.var)
    require(not attrs.training, "it normalizes by the statistics of its batch")
    gamma, beta, mean, variance = (
        known(site.ctx.number(a), "its statistics are not constant") for a in site.call.args[1:5]
    )
    gamma = gamma if attrs.scale else np.ones_like(gamma)
    beta = beta if attrs.center else np.zeros_like(beta)
    gain = gamma / np.sqrt(variance + float(attrs.epsilon))
    add = beta - mean * gain
    axis = int(attrs.axis) % int(x.ty.ndim)
    sums = _scale_channels(site, value, gain, add, axis)
    if params is not None:
        # float32 throughout, because ONNX Runtime computes these numbers in float32.
        root = np.sqrt((variance + np.float32(attrs.epsilon)).astype(np.float32))
        factor = (gamma / root).astype(np.float32)
        wanted = _float_results(value, factor, beta - mean * factor, params)
        scale = np.broadcast_to(sums.scale.astype(np.float32), gain.shape)
        weight = _weights(float(value.scale), gain, add)[0].astype(np.int64)
        nearest = np.round(add / scale.astype(np.float64)).astype(np.int64)
        bias = _match_float_bias(value, weight, nearest, scale, wanted, params)
        add = np.where(bias == nearest, add, bias * scale.astype(np.float64))
    return add_constant(site, sums, reading.spread(add, axis, int(x.ty.ndim)), None, x.ty)


def _weights(step: float, gain: Array, add: Array) -> tuple[Array, Array]:
    """Return weights, and which gains are negligible compared to the shift."""
    unit = step * np.abs(gain) / _WEIGHT
    with np.errstate(divide="ignore", invalid="ignore"):
        nothing = (gain == 0) | (np.abs(add) > unit * _LARGEST_BIAS)
    return np.where(nothing, 0, np.sign(gain) * _WEIGHT).astype(np.int16), nothing


def _scale_channels(
    site: Site, value: QuantizedValue, gain: Array, add: Array, axis: int
) -> QuantizedValue:
    """Multiply by one number per channel, with a depthwise convolution."""
    require(value.narrow, "its operand is not quantized before the operator")
    require(value.scalar, "its operand is quantized by channel")
    step = float(value.scale)
    weight, nothing = _weights(step, gain, add)
    units = np.where(add == 0, 1.0, np.abs(add)) / (step * _PARTS)
    scale = np.where(nothing, units, np.abs(gain) / _WEIGHT).astype(np.float32)
    require(np.all(np.isfinite(scale) & (scale > 0)), "its gains are beyond float32")
    lost = float(np.max(np.where(nothing, np.abs(gain), 0.0))) * step * value.far
    ty, count = site.call.args[0].ty, len(weight)
    layout = {(4, 1): "NCHW", (4, 3): "NHWC"}.get((int(ty.ndim), axis))
    require(layout is not None, "its operand is not an image with channels")
    kernel = site.ctx.constant(weight.reshape(-1, 1, 1, 1), "int16")
    one, none = scale[0] if np.all(scale == scale[0]) else scale, np.zeros((), np.int64)
    w = QuantizedValue(kernel, "int16", one, none, 0, -_WEIGHT, _WEIGHT)
    attributes = {"channels": count, "groups": count, "kernel_size": [1, 1], "data_layout": layout}
    expr = _bind_product(site, "conv2d", value, w, attributes, reading.with_dtype(ty, "int32"))
    exact = site.ctx.rounding == "TFLITE" and value.dtype != "uint8"
    most = value.far * _WEIGHT
    product = _scale(value, replace(w, scale=scale), exact)
    sums = QuantizedValue.sums(expr, product, axis, -most, most)
    return replace(sums, error=value.error * float(np.max(np.abs(gain))) + lost)


def add_constant(
    site: Site, sums: QuantizedValue, add: Array, stored: QuantizedValue | None, ty: Any
) -> QuantizedValue:
    """Add a constant to sums as their bias."""
    ndim, error = int(ty.ndim), 0.0
    scale = reading.spread(sums.scale, sums.axis, ndim).astype(np.float64)
    whole = _integers(stored, scale)
    if whole is None:
        steps = add / scale
        require(np.all(np.abs(steps) < INT32[1]), "its bias is beyond int32")
        whole = np.round(steps).astype(np.int64)
        error = float(np.max(np.abs(steps - whole) * scale, initial=0.0))
    require(sums.least > INT32[0], "it adds a constant to an int32 of unknown range")
    whole = whole.reshape((1,) * (ndim - whole.ndim) + whole.shape)
    least, most = sums.least + int(whole.min()), sums.most + int(whole.max())
    check_sums(least, most, " with the bias")
    expr = _biased(site, sums, whole, ty)
    return replace(sums, expr=expr, least=least, most=most, error=sums.error + error, array=None)


def _integers(stored: QuantizedValue | None, scale: Array) -> Array | None:
    """Return a quantized constant's integers if it has the scale of the sums."""
    if stored is None or stored.array is None or stored.clipped:
        return None
    own, zero = (
        reading.spread(x, stored.axis, stored.array.ndim) for x in (stored.scale, stored.zero)
    )
    if not np.all(np.abs(own.astype(np.float64) - scale) <= _SAME * scale):
        return None
    return stored.array.astype(np.int64) - zero


def _biased(site: Site, sums: QuantizedValue, whole: Array, ty: Any) -> relax.Expr:
    count = reading.channel_count(ty, sums.axis)
    if count is not None and set(np.flatnonzero(np.array(whole.shape) != 1)) <= {sums.axis}:
        vector = np.broadcast_to(whole.ravel(), (count,))
        operands = [sums.expr, site.ctx.constant(vector, "int32")]
        call = dialect.call("relax.relay.nn.bias_add", operands, {"axis": sums.axis})
    else:
        call = relax.op.add(sums.expr, site.ctx.constant(whole, "int32"))
    return site.bind(call, "biased", ty=reading.with_dtype(ty, "int32"))


# ONNX Runtime computes a batch normalization without a convolution in float32: dequantize,
# multiply, add, quantize. Its input has 8 bits, so each channel has 256 results. The integer form's
# bias has units of 1/32767 of a step. Nearly always the nearest bias produces the same 256 results;
# if a result is very close to a half-way case, a neighboring bias does.


def _inputs(value: QuantizedValue) -> Array:
    low, high = checks.limits(value.dtype)
    return np.arange(low, high + 1, dtype=np.int64)[:, None] - int(value.zero)


def _float_results(value: QuantizedValue, gain: Array, add: Array, params: QuantParams) -> Array:
    """Return ONNX Runtime's float results for every 8-bit input, with shape (256, channels)."""
    real = _inputs(value).astype(np.float32) * value.scale.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        made = (real * gain + add) / np.float32(params.scale)
        steps = np.rint(np.nan_to_num(made)).astype(np.float64) + params.zero
    results: Array = np.clip(steps, *checks.limits(params.dtype)).astype(np.int64)
    return results


def _match_float_bias(
    value: QuantizedValue,
    weight: Array,
    bias: Array,
    scale: Array,
    wanted: Array,
    params: QuantParams,
) -> Array:
    """Return the biases nearest to `bias` with the fewest results that differ from `wanted`."""
    inputs = _inputs(value)
    best, least = bias.copy(), np.full(len(bias), len(wanted) + 1)
    for near in sorted(range(-_FAR, _FAR + 1), key=abs):
        left = np.flatnonzero(least)
        if not left.size:
            break
        sums = np.clip(inputs * weight[left] + bias[left] + near, *INT32).astype(np.int32)
        out = np.float32(params.scale), params.zero
        made = arithmetic.requantize(
            sums, scale[left], 0, *out, axis=1, rounding="ONNX", out_dtype=params.dtype
        )
        wrong = (made != wanted[:, left]).sum(0)
        better = wrong < least[left]
        best[left[better]], least[left[better]] = bias[left[better]] + near, wrong[better]
    return best


_CONV = Rule(_conv2d)
PRODUCTS = {
    "relax.nn.conv2d": _CONV,
    "relax.nn.conv2d_transpose": _CONV,
    "relax.matmul": Rule(_matmul),
    "relax.relay.nn.dense": Rule(_dense),
    "relax.relay.nn.batch_matmul": Rule(_batch_matmul),
}
_AVERAGES = ("relax.mean", "relax.nn.avg_pool2d", *(f"relax.{name}" for name in _WHOLE))
RULES = {
    **PRODUCTS,
    **dict.fromkeys(_AVERAGES, Rule(_average, _average_at)),
    "relax.nn.batch_norm": Rule(_batch_norm, _batch_norm),
}
