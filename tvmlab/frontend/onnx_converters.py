"""Converters for ONNX operators that upstream's importer lacks or gets wrong.

Operators of ONNX Runtime's format QOperator, such as QLinearConv and QGemm, are converted to
dequantize, compute and quantize, so that both formats of its quantizer become the same Relax
operators. ConvInteger and DynamicQuantizeLinear become the operators that define them: the kernels
of `tvmlab.qnn` take constant zero points, and those of ConvInteger are mostly computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from ..errors import UnsupportedOperatorError
from ..indices.loops import static
from .checks import check_scales

__all__ = ["Importer", "importable", "nodes", "place"]

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
_PAD_MODES = {"edge": "replicate", "wrap": "circular"}
_SAME = (b"SAME_UPPER", b"SAME_LOWER")

Attributes = dict[str, Any]
Inputs = Sequence[Any]


def nodes(graph: Any) -> Iterator[Any]:
    """Yield a graph's nodes and those of the graphs in them, in the order of their conversion."""
    for node in graph.node:
        yield node
        inner = {a.name: a.g for a in node.attribute if a.HasField("g")}
        for name in sorted(inner, reverse=True):  # "then_branch" is converted before "else_branch"
            yield from nodes(inner[name])


def place(node: Any) -> str:
    """Return a node's kind and its name, or its outputs where it has no name."""
    return f"{node.op_type} " + (
        f"in node {node.name!r}" if node.name else f"giving {list(node.output)}"
    )


def importable() -> set[str]:
    """Return the operators that have a converter, here or upstream."""
    return {*upstream._get_convert_map(), *CONVERTERS, "If", "Constant"}


class Importer(upstream.ONNXGraphImporter):  # type: ignore[misc]
    """Upstream's importer with the converters of this module.

    `node` is the one that is converted just now; `quantized` is whether the model quantizes.
    """

    def __init__(self, graph: Any, sizes: dict[str, list[Any]], keep_params: bool, where: str):
        super().__init__(sizes, "float32", keep_params)
        self.node: Any = None
        self.quantized = False
        self._where = where
        self._order = (node for node in nodes(graph) if node.op_type != "If")

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Check nothing: `tvmlab.frontend.onnx` has done it, for branches too."""

    def _convert_operator(
        self, op_name: str, inputs: Inputs, attrs: Attributes, opset: int
    ) -> relax.Expr:
        self.node = next(self._order)
        return self.convert(op_name, inputs, attrs)

    def convert(self, kind: str, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        """Convert an operator by its converter here, or upstream's."""
        convert = CONVERTERS.get(kind)
        if convert is None:
            return self.by_upstream(kind, inputs, attributes)
        return self.bb.normalize(convert(self, upstream.onnx_input(inputs), attributes))

    def by_upstream(self, kind: str, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        """Convert an operator by upstream's converter."""
        given = upstream.onnx_input(inputs)
        return super()._convert_operator(kind, given, dict(attributes), self.opset)

    def value(self, x: relax.Expr) -> npt.NDArray[Any] | None:
        """Return the value of a constant or a weight, or None for what is computed."""
        if isinstance(x, relax.Var) and x.name in self._params:
            return np.asarray(self._params[x.name][1].numpy())
        return np.asarray(x.value.numpy()) if isinstance(x, tvm.ir.GenericConst) else None

    def dequantized(self, x: Any, scale: Any, zero: Any, axis: int | None = None) -> relax.Expr:
        """Dequantize; `axis` is that of the channels where they may have scales."""
        counts = [_count(scale), 1 if zero is None else _count(zero)]
        if axis is None or counts == [1, 1]:
            return self.convert("DequantizeLinear", [x, scale, zero], {})
        value = self.value(scale)
        if counts[0] == 1 and counts[1] and value is not None:  # wanted are as many of each
            scale = relax.const(np.full(counts[1], value.reshape(())))
        return self.convert("DequantizeLinear", [x, scale, zero], {"axis": axis})

    def quantized_as(self, y: Any, scale: Any, zero: Any, like: relax.Expr) -> relax.Expr:
        """Quantize; without a zero point, to the type of `like`."""
        if zero is None:
            zero = relax.const(0, str(like.ty.dtype))
        return self.convert("QuantizeLinear", [y, scale, zero], {})

    def place(self) -> str:
        """Return the model and the node that is converted, for errors."""
        return f"{self._where}: {place(self.node)}"

    def unsupported(self, why: str) -> UnsupportedOperatorError:
        """Make the error that says what of the node cannot be imported."""
        return UnsupportedOperatorError(
            f"tvmlab cannot import the ONNX operator {self.node.op_type} {why}",
            where=self.place(),
            fix="quantize the model with onnxruntime.quantization.quantize_static",
        )


Converter = Callable[[Importer, Inputs, Attributes], relax.Expr]


def _sizes(x: relax.Expr) -> list[int | None] | None:
    """Return a tensor's sizes, None for one that is not known; None for an unknown rank."""
    shape = x.ty.shape
    return [static(n) for n in shape.values] if isinstance(shape, relax.ShapeExpr) else None


def _count(x: relax.Expr) -> int | None:
    """Return how many numbers a tensor has, None where that is not known."""
    sizes = _sizes(x)
    known = [size for size in sizes or () if size is not None]
    return None if sizes is None or len(known) < len(sizes) else int(np.prod(known, dtype=int))


# QuantizeLinear and DequantizeLinear


def _linear(kind: str) -> Converter:
    """Convert by upstream, after checking what upstream computes wrongly or fails on."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        x, scale, zero = inputs[0:3]
        importer.quantized = True
        if attributes.get("block_size", 0):
            raise importer.unsupported("by blocks (block_size)")
        dtype = str(x.ty.dtype)
        if kind == "QuantizeLinear":
            asked = attributes.get("output_dtype", 0)
            dtype = str(zero.ty.dtype) if zero is not None else "uint8"
            dtype = upstream.get_type(asked) if asked else dtype
        if dtype not in _INTEGERS:
            raise importer.unsupported(f"of {dtype}")
        values: list[Any] = []
        for name, operand in (("scale", scale), ("zero point", zero)):
            value = None if operand is None else importer.value(operand)
            count = 1 if operand is None else _count(operand)
            # What is computed at run time is checked for its size alone.
            values.append(np.full(count or 1, name == "scale") if value is None else value)
        shape = _sizes(x)
        axis = attributes.get("axis", 0 if shape is not None and len(shape) < 2 else 1)
        check_scales(values[0], values[1], dtype, shape, axis, where=importer.place())
        return importer.by_upstream(kind, inputs, attributes)

    return convert


def _dynamic(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Compute the scale and the zero point of a tensor's range, which includes zero."""
    x, emit = inputs[0], importer.bb.emit
    nil, one, top = (relax.const(number, "float32") for number in (0, 1, 255))
    high = op.nn.relu(op.max(x))
    low = emit(op.nn.relu(op.negative(op.min(x))))
    step = emit(op.divide(op.add(high, low), top))
    # ONNX Runtime's scale of a tensor of zeros is 1; upstream divides zero by zero.
    scale = emit(op.where(op.equal(step, nil), one, step))
    zero = emit(op.astype(op.round(op.clip(op.divide(low, scale), 0, 255)), "uint8"))
    return relax.Tuple([importer.convert("QuantizeLinear", [x, scale, zero], {}), scale, zero])


# Operators of the QOperator format


def _weighted(
    importer: Importer, kind: str, inputs: Inputs, axis: int, bias: Any, attributes: Attributes
) -> relax.Expr:
    """Multiply by weights; a bias of int32 counts in units of the product of both scales."""
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
    rows = None if a.ty.ndim == 1 else -2  # a vector has no rows to differ
    left = importer.dequantized(a, a_scale, az, rows)
    right = importer.dequantized(b, b_scale, bz, -1)
    return importer.quantized_as(importer.convert("MatMul", [left, right], attributes), ys, yz, a)


def _qgemm(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    axis = 0 if attributes.get("transB", 0) else 1
    y = _weighted(importer, "Gemm", inputs, axis, inputs[6], attributes)
    return y if inputs[7] is None else importer.quantized_as(y, inputs[7], inputs[8], inputs[0])


def _qlinear(kind: str, count: int) -> Converter:
    """Convert a function of `count` operands that have one scale each."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        if attributes.get("channels_last", 0):
            raise importer.unsupported("with channels_last, which is data in NHWC")
        operands = [importer.dequantized(*inputs[3 * i : 3 * i + 3]) for i in range(count)]
        scale, zero = inputs[3 * count : 3 * count + 2]
        y = importer.convert(kind, operands, attributes)
        return importer.quantized_as(y, scale, zero, inputs[0])

    return convert


def _qlinear_softmax(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    # Before opset 13 softmax flattened its input at `axis`; at the last axis that is the same.
    if attributes.get("opset", 13) < 13 and attributes.get("axis", 1) != -1:
        raise importer.unsupported("with the meaning of softmax before opset 13")
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
    """Convert a window that moves over a picture, with the widths that SAME means as numbers."""

    def convert(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
        sizes = (_sizes(inputs[0]) or [])[2:]
        known = [size for size in sizes if size is not None]
        if attributes.get("auto_pad") in _SAME and len(known) == len(sizes):
            window = attributes.get("kernel_shape") or (_sizes(inputs[1]) or [])[2:]
            ones = [1] * len(window)
            strides, dilations = (attributes.get(name, ones) for name in ("strides", "dilations"))
            before, after = [], []
            for size, kernel, stride, step in zip(known, window, strides, dilations, strict=True):
                total = max((-(-size // stride) - 1) * stride + (kernel - 1) * step + 1 - size, 0)
                # An odd number of zeros has one more at the end for SAME_UPPER, else before.
                upper = attributes["auto_pad"] == b"SAME_UPPER"
                before.append(total // 2 if upper else total - total // 2)
                after.append(total - before[-1])
            attributes = {**attributes, "auto_pad": b"NOTSET", "pads": [*before, *after]}
        return importer.by_upstream(kind, inputs, attributes)

    return convert


def _pad(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Convert to ``nn.pad``, where upstream has a loop in TIR, which has no integer form."""
    if importer.opset < 11:  # widths and value are attributes
        return importer.by_upstream("Pad", inputs, attributes)
    x, widths, by, axes = inputs[0:4]
    number = None if by is None else _folded(importer, by)
    by = by if number is None else relax.const(number)
    mode = attributes.get("mode", b"constant").decode()
    known = [importer._nodes, importer._params]
    given = upstream.onnx_input([x, widths, by, axes])
    before, after, value = upstream.Pad._parse_pads_and_axes(given, known)
    exact = float(value) == value or value != value  # the attribute of `nn.pad` is a float64
    if not exact:
        return importer.by_upstream("Pad", given, attributes)
    pairs = [width for pair in zip(before, after, strict=True) for width in pair]
    return op.nn.pad(x, pairs, _PAD_MODES.get(mode, mode), float(value))


def _folded(importer: Importer, x: relax.Expr) -> npt.NDArray[Any] | None:
    """Return a constant's value, also where it is quantized or dequantized first."""
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
    """Convert to ``clip`` where the bounds are numbers; upstream has loops in TIR."""
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
    return op.clip(x, *(np.asarray(number).item() for number in numbers))


def _einsum(importer: Importer, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    return op.einsum(tuple(inputs), attributes["equation"].decode())


#: The converter of each operator by its name.
CONVERTERS: dict[str, Converter] = {
    "Clip": _clip,
    **{kind: _linear(kind) for kind in ("QuantizeLinear", "DequantizeLinear")},
    **{kind: _window(kind) for kind in ("AveragePool", "Conv", "LpPool", "MaxPool")},
    "ConvInteger": _conv_integer,
    "DynamicQuantizeLinear": _dynamic,
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
}
