"""Converters for ONNX operators that upstream's importer lacks or gets wrong.

Operators of ONNX Runtime's QOperator format, such as QLinearConv and QGemm, are converted to
dequantize, a float operator and quantize, so that both formats of its quantizer become the same
Relax operators. ConvInteger becomes the operators that define it, because the kernels of
`tvmlab.qnn` need constant zero points, which ConvInteger seldom has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from ..indices.loops import static
from ..ir.dialect import WIDENED
from .arithmetic import equal, inverse
from .checks import check_scales
from .onnx_graphs import SUBGRAPHS, Attributes, GraphImporter, Inputs, const, nodes, place, sizes_of
from .onnx_integers import INTEGERS
from .onnx_layers import LAYERS
from .onnx_numbers import NUMBERS, cast, wide
from .onnx_recurrent import RECURRENT
from .onnx_reduce import EXTREMES
from .onnx_resize import RESIZE
from .onnx_run_time import RUN_TIME
from .onnx_sampling import SAMPLING
from .onnx_signal import SIGNAL
from .onnx_sizes import quotient, size_range, sizes_in

__all__ = ["Importer", "importable", "nodes", "place"]

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
_PAD_MODES = {"edge": "replicate", "wrap": "circular"}
_SAME = (b"SAME_UPPER", b"SAME_LOWER")

#: The domains of ONNX's own operators.
ONNX = ("", "ai.onnx", "ai.onnx.preview")
#: The operators that are converted by their definition, although upstream has a converter.
BY_DEFINITION = {"Attention", "GroupNormalization", "RMSNormalization"}


def importable() -> set[str]:
    """Return the operators that have a converter, here or upstream, or a definition by others."""
    schemas = onnx.defs.get_all_schemas_with_history()
    functions = {
        one.name for one in schemas if one.has_function or one.has_context_dependent_function
    }
    converted = {*upstream._get_convert_map(), *CONVERTERS, "Constant", "MelWeightMatrix"}
    return converted | functions - {"Bernoulli"}


class Importer(GraphImporter):
    """Upstream's importer with the converters of this module.

    `quantized` is whether the model has quantized operators, and `narrow` has the dtypes of the
    model's values of 2 and 4 bits.
    """

    narrow: Mapping[str, str] = {}

    def __init__(self, sizes: dict[str, list[Any]], keep_params: bool, where: str):
        super().__init__(sizes, "float32", keep_params)
        self.quantized = False
        self._where = where

    def convert(self, kind: str, inputs: Inputs, attributes: Attributes) -> Any:
        """Convert an operator with this module's converter, upstream's, or by its definition."""
        node = attributes.get("tvm_custom", {}).get("node")
        if node is not None and node.op_type == kind:
            made = self.folded(node, inputs)
            if made is None and kind in RUN_TIME and self.computed(inputs[RUN_TIME[kind][0]]):
                return RUN_TIME[kind][1](self, upstream.onnx_input(inputs), attributes)
            if made is None and kind.startswith(("Arg", "Reduce")) and _count(inputs[0]) == 0:
                raise self.unsupported("of an empty tensor", "make its axes constants")
            undefined = kind not in CONVERTERS and kind not in upstream._get_convert_map()
            defined = kind in BY_DEFINITION or (kind == "LayerNormalization" and _many(node))
            if made is None and node.domain in ONNX and (defined or undefined):
                made = self.defined(node, inputs)
            if made is not None:
                return made
        convert = CONVERTERS.get(kind)
        if convert is None:
            return self.by_upstream(kind, inputs, attributes)
        made = convert(self, upstream.onnx_input(inputs), attributes)
        return self.bb.normalize(made) if isinstance(made, relax.Expr) else made

    def dequantized(self, x: Any, scale: Any, zero: Any, axis: int | None = None) -> relax.Expr:
        """Dequantize `x`; `axis` is the axis of its channels if each channel can have a scale."""
        counts = [_count(scale), 1 if zero is None else _count(zero)]
        if axis is None or counts == [1, 1]:
            return self.convert("DequantizeLinear", [x, scale, zero], {})
        value = self.value(scale)
        if counts[0] == 1 and counts[1] and value is not None:  # as many zero points as scales
            scale = relax.const(np.full(counts[1], value.reshape(())))
        return self.convert("DequantizeLinear", [x, scale, zero], {"axis": axis})

    def quantized_as(self, y: Any, scale: Any, zero: Any, like: relax.Expr) -> relax.Expr:
        """Quantize `y`; without a zero point, to the dtype of `like`."""
        if zero is None:
            zero = relax.const(0, str(like.ty.dtype))
        return self.convert("QuantizeLinear", [y, scale, zero], {})


def _many(node: Any) -> bool:
    """Return whether a node has several results."""
    return sum(map(bool, node.output)) > 1


Converter = Callable[[Importer, Inputs, Attributes], relax.Expr]


def _count(x: relax.Expr) -> int | None:
    """Return the number of a tensor's elements, None if it is unknown."""
    sizes = sizes_of(x)
    known = [size for size in sizes or () if size is not None]
    return None if sizes is None or len(known) < len(sizes) else int(np.prod(known, dtype=int))


# QuantizeLinear and DequantizeLinear


def _linear(kind: str) -> Converter:
    """Make a converter that calls upstream's after checking for cases where upstream fails."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        x, scale, zero = inputs[0:3]
        importer.quantized = True
        node = importer.node if importer.node.op_type == kind else None  # or of another operator
        if node is not None and zero is not None and _count(zero) != _count(scale):
            what = f"with {_count(scale)} scales and {_count(zero)} zero points"
            raise importer.unsupported(what)
        dtype = str(x.ty.dtype)
        if kind == "QuantizeLinear":
            asked = attributes.get("output_dtype", 0)
            dtype = str(zero.ty.dtype) if zero is not None else "uint8"
            dtype = upstream.get_type(asked) if asked else dtype
            dtype = dtype if node is None else importer.narrow.get(node.output[0], dtype)
        known = dtype in (*_INTEGERS, *WIDENED)
        if dtype.startswith(("float4", "float8")) or (known and attributes.get("block_size", 0)):
            return _plainly(importer, kind, inputs, attributes, dtype)
        if not known:
            raise importer.unsupported(f"of {dtype}")
        values: list[Any] = []
        for name, operand in (("scale", scale), ("zero point", zero)):
            value = None if operand is None else importer.value(operand)
            count = 1 if operand is None else _count(operand)
            # Of computed scales and zero points, only the number of elements is known here.
            values.append(np.full(count or 1, name == "scale") if value is None else value)
        shape = sizes_of(x)
        axis = attributes.get("axis", 0 if shape is not None and len(shape) < 2 else 1)
        stored = WIDENED.get(dtype, dtype)
        check_scales(values[0], values[1], stored, shape, axis, where=importer.place())
        if dtype in WIDENED:
            return _plainly(importer, kind, inputs, attributes, dtype)
        return importer.by_upstream(kind, inputs, attributes)

    return convert


def _plainly(
    importer: Importer, kind: str, inputs: Inputs, attributes: Attributes, dtype: str
) -> relax.Expr:
    """Quantize or dequantize by blocks, or to small floats and integers, with plain operators."""
    x, emit = inputs[0], importer.bb.emit
    axis, block = attributes.get("axis", 1) % max(x.ty.ndim, 1), attributes.get("block_size", 0)
    sizes, real = importer.known_sizes(x), "float32"
    if kind == "DequantizeLinear":
        asked = attributes.get("output_dtype", 0)
        real = upstream.get_type(asked) if asked else str(inputs[1].ty.dtype)

    if block:
        wanted = [-(-n // block) if k == axis else n for k, n in enumerate(sizes)]
        if block < 0 or sizes_of(inputs[1]) != wanted:
            what = f"with blocks of {block} of {sizes} and scales of {sizes_of(inputs[1])}"
            raise importer.unsupported(what, "give a scale for each block")
    blocks = sizes[axis] // block if block else 0
    # If all blocks are full, they are an axis of their own, so that `IntegerWeights` finds them.
    whole_blocks = kind == "DequantizeLinear" and 0 < blocks * block == sizes[axis]
    if whole_blocks:
        x = emit(op.reshape(x, [*sizes[:axis], blocks, block, *sizes[axis + 1 :]]))

    def spread(value: Any) -> Any:
        if whole_blocks:
            return emit(op.expand_dims(value, axis + 1))
        if block:
            value = emit(op.repeat(value, block, axis))
            return emit(op.strided_slice(value, [axis], [0], [sizes[axis]]))
        line = [-1 if k == axis else 1 for k in range(len(sizes))]
        return value if _count(value) == 1 else emit(op.reshape(value, line))

    scale = spread(cast(importer, inputs[1], real, {}))
    zero = None if inputs[2] is None else spread(cast(importer, inputs[2], "float32", {}))
    if kind == "DequantizeLinear":
        wide_x = cast(importer, x, "float32", {})
        shifted = wide_x if zero is None else emit(op.subtract(wide_x, zero))
        shifted = shifted if real == "float32" else cast(importer, shifted, real, {})
        made = op.multiply(shifted, scale)
        return op.reshape(emit(made), sizes) if whole_blocks else made
    scaled = emit(op.divide(cast(importer, x, "float32", {}), scale))
    whole = "int" in dtype
    scaled = emit(op.round(scaled)) if whole else scaled
    scaled = scaled if zero is None else emit(op.add(scaled, zero))
    if whole:
        info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return op.astype(op.clip(scaled, info.min, info.max), WIDENED.get(dtype, dtype))
    return cast(importer, scaled, dtype, attributes)


# Operators of the QOperator format


def _weighted(
    importer: Importer, kind: str, inputs: Inputs, axis: int, bias: Any, attributes: Attributes
) -> relax.Expr:
    """Multiply by weights; the unit of an int32 bias is the product of both scales."""
    x, x_scale, xz, w, w_scale, wz = inputs[0:6]
    operands = [importer.dequantized(x, x_scale, xz), importer.dequantized(w, w_scale, wz, axis)]
    if bias is not None:
        a, b = importer.value(x_scale), importer.value(w_scale)
        factor = np.float32(attributes.get("alpha", 1.0))
        if a is not None and b is not None:
            scale = relax.const((a * b * factor).astype("float32"))
        else:
            scale = op.multiply(op.multiply(x_scale, w_scale), relax.const(factor, "float32"))
        operands.append(importer.dequantized(bias, scale, None, 0))
    return importer.convert(kind, operands, attributes)


def _qlinear_conv(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    y = _weighted(importer, "Conv", inputs, 0, inputs[8], attributes)
    return importer.quantized_as(y, inputs[6], inputs[7], inputs[0])


def _qlinear_matmul(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    a, a_scale, az, b, b_scale, bz, ys, yz = inputs[0:8]
    emit = importer.bb.emit
    a_scale, b_scale, ys = (
        emit(op.astype(one, "float32")) if str(one.ty.dtype) != "float32" else one
        for one in (a_scale, b_scale, ys)
    )
    rows = None if a.ty.ndim == 1 else -2  # a vector has no rows that could have scales
    left = importer.dequantized(a, a_scale, az, rows)
    right = importer.dequantized(b, b_scale, bz, -1)
    return importer.quantized_as(importer.convert("MatMul", [left, right], attributes), ys, yz, a)


def _qgemm(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    axis = 0 if attributes.get("transB", 0) else 1
    y = _weighted(importer, "Gemm", inputs, axis, inputs[6], attributes)
    return y if inputs[7] is None else importer.quantized_as(y, inputs[7], inputs[8], inputs[0])


def _qlinear(kind: str, count: int) -> Converter:
    """Make a converter for a function of `count` operands with one scale each."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        if attributes.get("channels_last", 0):
            raise importer.unsupported("with channels_last, that is, data in NHWC")
        operands = [importer.dequantized(*inputs[3 * i : 3 * i + 3]) for i in range(count)]
        scale, zero = inputs[3 * count : 3 * count + 2]
        y = importer.convert(kind, operands, attributes)
        return importer.quantized_as(y, scale, zero, inputs[0])

    return convert


def _qlinear_softmax(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    # Before opset 13 softmax flattened its input at `axis`; for the last axis nothing differs.
    if attributes.get("opset", 13) < 13 and attributes.get("axis", 1) != -1:
        raise importer.unsupported("as defined before opset 13, along another axis than the last")
    return _qlinear("Softmax", 1)(importer, inputs, attributes)


def _qlinear_concat(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    scale, zero, *rest = inputs
    parts = [importer.dequantized(*rest[i : i + 3]) for i in range(0, len(rest), 3)]
    y = importer.convert("Concat", parts, attributes)
    return importer.quantized_as(y, scale, zero, rest[0])


def _conv_integer(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    x, w, x_zero, w_zero = inputs[0:4]
    if w_zero is not None and _count(w_zero) != 1:
        w_zero = op.reshape(w_zero, [-1, *[1] * (w.ty.ndim - 1)])
    operands = []
    for value, zero in ((x, x_zero), (w, w_zero)):
        wide = op.astype(value, "int32")
        made = wide if zero is None else op.subtract(wide, op.astype(zero, "int32"))
        operands.append(importer.bb.normalize(made))
    return importer.convert("Conv", operands, attributes)


# Padding


def _window(kind: str) -> Converter:
    """Make a converter for an operator with windows that turns SAME padding into numbers."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        sizes = (sizes_of(inputs[0]) or [])[2:]
        known = [size for size in sizes if size is not None]
        if attributes.get("auto_pad") in _SAME and len(known) == len(sizes):
            window = attributes.get("kernel_shape") or (sizes_of(inputs[1]) or [])[2:]
            ones = [1] * len(window)
            strides, dilations = (attributes.get(name, ones) for name in ("strides", "dilations"))
            before, after = [], []
            for size, kernel, stride, step in zip(known, window, strides, dilations, strict=True):
                total = max((-(-size // stride) - 1) * stride + (kernel - 1) * step + 1 - size, 0)
                # With odd padding, SAME_UPPER adds one more zero at the end, SAME_LOWER before.
                upper = attributes["auto_pad"] == b"SAME_UPPER"
                before.append(total // 2 if upper else total - total // 2)
                after.append(total - before[-1])
            attributes = {**attributes, "auto_pad": b"NOTSET", "pads": [*before, *after]}
        if kind == "Conv":
            bias, weight = inputs[2], sizes_of(inputs[1])
            if bias is not None and weight and sizes_of(bias) != weight[:1]:  # TVM would broadcast
                raise importer.unsupported(f"with a bias of shape {sizes_of(bias)}", "reshape it")
        if kind == "LpPool" and attributes.get("ceil_mode"):
            raise importer.unsupported("with ceil_mode", "pad the tensor instead")
        return importer.by_upstream(kind, inputs, attributes)

    return convert


def _pad(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Convert to ``nn.pad``; upstream emits a loop in TIR, which has no integer form."""
    if importer.opset < 11:  # widths and value are attributes
        return importer.by_upstream("Pad", inputs, attributes)
    x, widths, by, axes = inputs[0:4]
    number = None if by is None else _folded(importer, by)
    by = by if number is None else const(number)
    mode = attributes.get("mode", b"constant").decode()
    known = [importer._nodes, importer._params]
    given = upstream.onnx_input([x, widths, by, axes])
    before, after, value = upstream.Pad._parse_pads_and_axes(given, known)
    # The attribute of `nn.pad` is a float64.
    exact = np.array(float(value)).astype(str(x.ty.dtype)) == value or value != value
    if not exact:
        return importer.by_upstream("Pad", given, attributes)
    pairs = [width for pair in zip(before, after, strict=True) for width in pair]
    return op.nn.pad(x, pairs, _PAD_MODES.get(mode, mode), float(value))


def _folded(importer: Importer, x: relax.Expr) -> npt.NDArray[Any] | None:
    """Return the value of a constant, or of a constant that is quantized or dequantized."""
    bound = importer.bb.lookup_binding(x) if isinstance(x, relax.Var) else x
    name = getattr(getattr(bound, "op", None), "name", "")
    if name not in ("relax.quantize", "relax.dequantize"):
        return importer.value(x)
    parts = [_folded(importer, part) for part in bound.args]
    if any(part is None or part.size != 1 for part in parts):
        return None
    value, scale, zero = (np.asarray(part).reshape(()) for part in parts)
    if name == "relax.dequantize":
        real = (value.astype("int64") - zero.astype("int64")).astype("float32")
        return np.asarray(real * scale, "float32")
    info = np.iinfo(bound.attrs.out_dtype)
    made = np.clip(np.rint(value / scale) + zero.astype("int64"), info.min, info.max)
    return np.asarray(made, info.dtype)


def _clip(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Convert to ``clip`` if the bounds are constants; upstream emits loops in TIR."""
    x, *bounds = inputs[0:3]
    dtype, ends = str(x.ty.dtype), (-np.inf, np.inf)
    if importer.opset < 11:
        numbers = [
            attributes.get(name, end) for name, end in zip(("min", "max"), ends, strict=True)
        ]
    else:
        numbers = [
            end if bound is None else _folded(importer, bound)
            for bound, end in zip(bounds, ends, strict=True)
        ]
    open_ = not dtype.startswith("float") and any(bound is None for bound in bounds)
    if open_ or any(number is None or number != number for number in numbers):
        return importer.by_upstream("Clip", inputs, attributes)
    low, high = (np.asarray(number).item() for number in numbers)
    return op.clip(x, min(low, high), high)


def _einsum(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    return op.einsum(tuple(inputs), attributes["equation"].decode())


# What upstream converts wrongly


def _shape(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    start, end = attributes.get("start", 0), attributes.get("end")
    sizes = sizes_of(inputs[0]) if isinstance(inputs[0].ty, relax.TensorType) else None
    chosen = [None] if sizes is None else sizes[start:end]
    if None not in chosen:
        return const(np.array(chosen, "int64"))
    if sizes is not None:
        return relax.ShapeExpr(inputs[0].ty.shape.values[start:end])
    if start or end is not None:
        raise importer.unsupported("of an unknown rank, with start or end", "give `shapes` to load")
    return importer.by_upstream("Shape", inputs, attributes)


def _is_inf(_: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    x, zero = inputs[0], relax.const(0, str(inputs[0].ty.dtype))
    found = op.isinf(x)
    for name, sign in (("detect_negative", op.greater), ("detect_positive", op.less)):
        found = found if attributes.get(name, 1) else op.logical_and(found, sign(x, zero))
    return found


def _sequence_insert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Insert a tensor before the one at a position; upstream inserts after a negative one."""
    parts, x, position = list(inputs[0]), inputs[1], inputs[2]
    at = len(parts) if position is None else importer.value(position)
    if at is None or not -len(parts) <= int(at) <= len(parts):
        raise importer.unsupported(
            "at a position that is not a constant of its range", "pass a constant"
        )
    parts.insert(int(at), x)
    return relax.Tuple(parts)


def _one_hot(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    indices, depth, values = inputs
    size, emit = importer.value(depth), importer.bb.emit
    if size is None:
        raise importer.unsupported("with a depth computed at run time", "make it a constant")
    count = int(size.reshape(()))
    axis = attributes.get("axis", -1) % (indices.ty.ndim + 1)
    index = emit(op.expand_dims(emit(op.astype(indices, "int64")), axis))
    index = emit(
        op.where(op.less(index, const(np.int64(0))), op.add(index, const(np.int64(count))), index)
    )
    line = np.arange(count).reshape([-1 if k == axis else 1 for k in range(indices.ty.ndim + 1)])
    off, on = (emit(op.take(values, const(np.int64(i)), 0)) for i in range(2))
    return op.where(op.equal(index, const(line)), on, off)


def _equal(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    if all(isinstance(getattr(x, "ty", None), relax.TensorType) for x in inputs):
        return equal(*inputs)
    return importer.by_upstream("Equal", inputs, attributes)


def _not(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    return inverse(inputs[0])


def _mish(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Compute tanh(softplus(x)) as n / (n + 2), because log(1 + exp(x)) rounds small numbers."""
    x, emit = inputs[0], importer.bb.emit
    two = const(np.array(2, str(x.ty.dtype)))
    e = emit(op.exp(op.clip(x, -1000, 20 if str(x.ty.dtype) != "float16" else 5)))
    n = emit(op.multiply(e, op.add(e, two)))
    return op.multiply(x, op.divide(n, op.add(n, two)))


def _thresholded(_: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    x, alpha = inputs[0], np.array(attributes.get("alpha", 1.0), str(inputs[0].ty.dtype))
    return op.where(op.greater(x, const(alpha)), x, const(np.zeros_like(alpha)))


def _unsqueeze(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    axes = None if inputs[1] is None else importer.value(inputs[1])
    if axes is not None:  # PyTorch also writes a number
        inputs = [inputs[0], const(axes.reshape(-1))]
    return importer.by_upstream("Unsqueeze", inputs, attributes)


def _slice(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    if importer.opset >= 10:
        return importer.by_upstream("Slice", inputs, attributes)
    starts, ends = attributes["starts"], attributes["ends"]
    axes = attributes.get("axes", range(len(starts)))
    return importer.by_upstream("Slice", [inputs[0], *map(const, (starts, ends, axes))], {})


def _reshape(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Compute the size that is written as -1 without a division by symbolic sizes."""
    x, target = inputs[0], sizes_in(inputs[1], importer.value(inputs[1]))
    known = isinstance(x.ty, relax.TensorType) and isinstance(x.ty.shape, relax.ShapeExpr)
    old = list(x.ty.shape.values) if known else []
    if target is None or None not in [static(size) for size in (*old, *target)]:
        return importer.by_upstream("Reshape", inputs, attributes)
    if not attributes.get("allowzero"):
        target = [old[i] if static(n) == 0 and i < len(old) else n for i, n in enumerate(target)]
    if [static(n) for n in target].count(-1) == 1:
        others = [n for n in target if static(n) != -1]
        target = [quotient(old, others) if static(n) == -1 else n for n in target]
    return op.reshape(x, relax.ShapeExpr(target))


def _range(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    made = size_range(inputs)
    return importer.by_upstream("Range", inputs, attributes) if made is None else made


def _expand(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    x, target = inputs[0], sizes_in(inputs[1], importer.value(inputs[1]))
    tensor = isinstance(x.ty, relax.TensorType)
    if target is None or not tensor or None not in (sizes_of(x) or ()):
        return importer.by_upstream("Expand", inputs, attributes)
    whole = relax.ShapeExpr([*[1] * (x.ty.ndim - len(target)), *target])
    return importer.by_upstream("Expand", [x, whole], attributes)


#: The converter of each operator by its name.
CONVERTERS: dict[str, Converter] = {
    **EXTREMES,
    **INTEGERS,
    **LAYERS,
    **SUBGRAPHS,
    **NUMBERS,
    **RECURRENT,
    **RESIZE,
    **SAMPLING,
    **SIGNAL,
    "Clip": _clip,
    "Equal": _equal,
    "Expand": _expand,
    "IsInf": _is_inf,
    "Mish": _mish,
    "Not": _not,
    "OneHot": _one_hot,
    "SequenceInsert": _sequence_insert,
    "Shape": _shape,
    **{kind: _linear(kind) for kind in ("QuantizeLinear", "DequantizeLinear")},
    **{kind: _window(kind) for kind in ("AveragePool", "Conv", "LpPool", "MaxPool")},
    "ConvInteger": _conv_integer,
    "Einsum": _einsum,
    "Pad": _pad,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear("Add", 2),
    "QLinearAveragePool": _qlinear("AveragePool", 1),
    "QLinearConcat": _qlinear_concat,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": _qlinear("GlobalAveragePool", 1),
    "QLinearLeakyRelu": _qlinear("LeakyRelu", 1),
    "QLinearMatMul": _qlinear_matmul,
    "QLinearMul": _qlinear("Mul", 2),
    "QLinearSigmoid": _qlinear("Sigmoid", 1),
    "QLinearSoftmax": _qlinear_softmax,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "ThresholdedRelu": _thresholded,
    "Unsqueeze": _unsqueeze,
}
# Operators that sum, or whose steps round.
for _kind in (
    *("AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "Elu", "Gemm", "LogSoftmax"),
    *("GlobalAveragePool", "GlobalLpPool", "InstanceNormalization", "LpPool", "MatMul", "Selu"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare", "Softmax"),
):
    CONVERTERS[_kind] = wide(_kind, CONVERTERS.get(_kind))
