"""ONNX's quantized operators as float operators between DequantizeLinear and QuantizeLinear.

ONNX Runtime's static quantizer has two formats: QDQ, which upstream imports, and QOperator, with
one operator for dequantize, compute, quantize: QLinearConv and QLinearMatMul of ONNX, and QGemm,
QLinearAdd and others of ONNX Runtime's domain com.microsoft. Both say the same. Here the second is
rewritten into the first, in a copy of the model's graph.

ConvInteger and DynamicQuantizeLinear are no such pairs: they are written out in the operators that
they stand for, the first in int32, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedOperatorError
from ..extras import need

__all__ = ["rewrite"]

_MICROSOFT = "com.microsoft"


def rewrite(model: Any, where: str) -> Any:
    """Write quantized operators out in QuantizeLinear, DequantizeLinear and float operators.

    Parameters
    ----------
    model : onnx.ModelProto
        A valid model; it is left unchanged.
    where : str
        The model, for errors.

    Returns
    -------
    onnx.ModelProto
        The same object where there is nothing to write out, else a copy. The new nodes' names
        begin with the old one's.

    Raises
    ------
    UnsupportedOperatorError
        An attribute has no such form, or a type has to be known and is not.
    """
    if not any(_rule(node) for node in model.graph.node):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    nodes = list(copy.graph.node)
    writer = _Writer(copy.graph, where)
    del copy.graph.node[:]
    for node in nodes:
        rule = _rule(node)
        if rule is None:
            writer.emit(node)
        else:
            writer.old = node
            rule(writer, node)
    return copy


def _rule(node: Any) -> Callable[[_Writer, Any], None] | None:
    rules = _RULES if node.domain == _MICROSOFT else _STANDARD
    return rules.get(node.op_type) if node.domain in ("", "ai.onnx", _MICROSOFT) else None


class _Writer:
    """Writes new nodes into a graph.

    Parameters
    ----------
    graph : onnx.GraphProto
        Its nodes are taken out by now; what it declares is still there.
    where : str
        The model, for errors.
    """

    def __init__(self, graph: Any, where: str) -> None:
        onnx = need("onnx", extra="onnx")
        self.onnx, self.graph, self.where = onnx, graph, where
        self.old: Any = None  # the node that is written out just now
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        #: Element types by name, as far as they are known.
        self.types = {tensor.name: tensor.data_type for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.types[value.name] = value.type.tensor_type.elem_type
        self.taken = {*self.types}
        for node in graph.node:
            self.taken.update(node.input)
            self.taken.update(node.output)

    def emit(self, node: Any) -> None:
        """Take a node into the graph, and note what is known of its results."""
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            self.constants[node.output[0]] = node.attribute[0].t
            self.types[node.output[0]] = node.attribute[0].t.data_type
        elif node.op_type == "QuantizeLinear":
            zero = node.input[2] if len(node.input) > 2 else ""
            unknown = self.onnx.TensorProto.UINT8 if not zero else 0
            self.types.setdefault(node.output[0], self.types.get(zero, unknown))
        elif node.input and node.op_type in _PASSING:
            self.types.setdefault(node.output[0], self.types.get(node.input[0], 0))
        self.graph.node.append(node)

    def name(self, part: str) -> str:
        """Make a name that the graph does not have yet."""
        stem = f"{self.old.name or self.old.output[0]}_{part}"
        found, number = stem, 0
        while found in self.taken:
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found

    def make(
        self, kind: str, inputs: Sequence[str], part: str = "", output: str = "", **attributes: Any
    ) -> str:
        """Emit a node; its result's name."""
        name = self.name(part or kind)
        made = self.onnx.helper.make_node(
            kind, list(inputs), [output or name], name=name, **attributes
        )
        self.emit(made)
        return output or name

    def constant(self, value: Any, part: str) -> str:
        """Put an array into the graph as an initializer."""
        name = self.name(part)
        tensor = self.onnx.numpy_helper.from_array(np.asarray(value), name)
        self.graph.initializer.append(tensor)
        self.constants[name], self.types[name] = tensor, tensor.data_type
        return name

    def value(self, name: str) -> Any:
        """Give a constant's value, None for what is computed."""
        tensor = self.constants.get(name)
        return None if tensor is None else self.onnx.numpy_helper.to_array(tensor)

    def dequantized(self, x: str, scale: str, zero: str, part: str, axis: int | None = None) -> str:
        """Emit DequantizeLinear; `axis` where there are scales by channel."""
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        inputs = [x, scale, *([zero] if zero else [])]
        return self.make("DequantizeLinear", inputs, f"{part}_dequantized", **attributes)

    def quantized(self, y: str, scale: str, zero: str, like: str) -> None:
        """Emit QuantizeLinear to the old node's result; without a zero point, as `like` is."""
        if not zero:
            kind = self.types.get(like, 0)
            if not kind:
                raise self.unsupported(
                    f"without an output zero point, where the type of {like!r} is not known"
                )
            dtype = self.onnx.helper.tensor_dtype_to_np_dtype(kind)
            zero = self.constant(np.zeros(self.shape(scale), dtype), "y_zero_point")
        self.make("QuantizeLinear", [y, scale, zero], "quantized", self.old.output[0])
        self.types[self.old.output[0]] = self.types.get(zero, 0)

    def shape(self, name: str) -> tuple[int, ...]:
        """Give a constant's shape, that of a scalar for what is computed."""
        value = self.value(name)
        return () if value is None else tuple(value.shape)

    def product(self, left: str, right: str, factor: float = 1.0) -> str:
        """Give the scale of a bias: the product of the operands' scales, in float32."""
        a, b = self.value(left), self.value(right)
        if a is not None and b is not None:
            return self.constant((a * b * np.float32(factor)).astype("float32"), "bias_scale")
        made = self.make("Mul", [left, right], "bias_scale")
        if factor == 1.0:
            return made
        return self.make("Mul", [made, self.constant(np.float32(factor), "alpha")], "bias_scale")

    def many(self, name: str) -> bool:
        """Say whether a scale is one for each channel."""
        value = self.value(name)
        return value is not None and value.ndim > 0 and value.size > 1

    def attributes(self, *without: str) -> dict[str, Any]:
        """Give the old node's attributes but for those named."""
        return {
            a.name: self.onnx.helper.get_attribute_value(a)
            for a in self.old.attribute
            if a.name not in without
        }

    def unsupported(self, why: str) -> UnsupportedOperatorError:
        """Make the error that says what of the old node cannot be imported."""
        node = self.old
        named = f"in node {node.name!r}" if node.name else f"giving {list(node.output)}"
        return UnsupportedOperatorError(
            f"tvmlab cannot import the ONNX operator {node.op_type} {why}",
            where=f"{self.where}: {node.op_type} {named}",
            fix="quantize the model with onnxruntime.quantization.quantize_static and "
            "QuantFormat.QDQ; supported are int8 and uint8 in NCHW, per tensor, and weights per "
            "channel too",
        )


def _inputs(node: Any, count: int) -> Iterator[str]:
    """Yield a node's inputs, "" for those left out."""
    yield from (*node.input, *[""] * (count - len(node.input)))


def _channels_first(writer: _Writer) -> None:
    if writer.attributes().get("channels_last", 0):
        raise writer.unsupported("with channels_last, which is data in NHWC")


def _conv(writer: _Writer, node: Any) -> None:
    x, xs, xz, w, ws, wz, ys, yz, bias = _inputs(node, 9)
    inputs = [
        writer.dequantized(x, xs, xz, "x"),
        writer.dequantized(w, ws, wz, "w", 0 if writer.many(ws) else None),
    ]
    if bias:
        scale = writer.product(xs, ws)
        axis = 0 if writer.many(scale) else None
        inputs.append(writer.dequantized(bias, scale, "", "bias", axis))
    y = writer.make("Conv", inputs, "float", **writer.attributes())
    writer.quantized(y, ys, yz, x)


def _matmul(writer: _Writer, node: Any) -> None:
    a, a_scale, az, b, bs, bz, ys, yz = _inputs(node, 8)
    for scale in (a_scale, bs):
        if len(writer.shape(scale)) > 1:
            raise writer.unsupported("with a scale for each of many matrices")
    left = writer.dequantized(a, a_scale, az, "a", -2 if writer.many(a_scale) else None)
    right = writer.dequantized(b, bs, bz, "b", -1 if writer.many(bs) else None)
    writer.quantized(writer.make("MatMul", [left, right], "float"), ys, yz, a)


def _gemm(writer: _Writer, node: Any) -> None:
    a, a_scale, az, b, bs, bz, bias, ys, yz = _inputs(node, 9)
    attributes = writer.attributes()
    axis = 0 if attributes.get("transB", 0) else 1
    inputs = [
        writer.dequantized(a, a_scale, az, "a"),
        writer.dequantized(b, bs, bz, "b", axis if writer.many(bs) else None),
    ]
    if bias:
        # C counts in units of alpha * a_scale * b_scale, one for each column of the result.
        scale = writer.product(a_scale, bs, attributes.get("alpha", 1.0))
        shape = writer.shape(bias)
        many = writer.many(scale)
        if many and not shape:
            raise writer.unsupported("with scales by channel and a bias that is no constant")
        inputs.append(writer.dequantized(bias, scale, "", "bias", len(shape) - 1 if many else None))
    if not ys:
        writer.make("Gemm", inputs, "float", node.output[0], **attributes)
        return
    writer.quantized(writer.make("Gemm", inputs, "float", **attributes), ys, yz, a)


def _binary(kind: str) -> Callable[[_Writer, Any], None]:
    def rule(writer: _Writer, node: Any) -> None:
        a, a_scale, az, b, bs, bz, ys, yz = _inputs(node, 8)
        left = writer.dequantized(a, a_scale, az, "a")
        right = writer.dequantized(b, bs, bz, "b")
        writer.quantized(writer.make(kind, [left, right], "float"), ys, yz, a)

    return rule


def _unary(kind: str) -> Callable[[_Writer, Any], None]:
    def rule(writer: _Writer, node: Any) -> None:
        x, xs, xz, ys, yz = _inputs(node, 5)
        _channels_first(writer)
        inner = writer.dequantized(x, xs, xz, "x")
        attributes = writer.attributes("channels_last", "opset")
        writer.quantized(writer.make(kind, [inner], "float", **attributes), ys, yz, x)

    return rule


def _softmax(writer: _Writer, node: Any) -> None:
    # Before opset 13 softmax flattened its input at `axis`; at the last axis that is the same.
    if writer.attributes().get("opset", 13) < 13 and writer.attributes().get("axis", 1) != -1:
        raise writer.unsupported("with the meaning of softmax before opset 13")
    _unary("Softmax")(writer, node)


def _concat(writer: _Writer, node: Any) -> None:
    ys, yz, *rest = node.input
    parts = [
        writer.dequantized(x, scale, zero, f"x{i}")
        for i, (x, scale, zero) in enumerate(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    ]
    y = writer.make("Concat", parts, "float", **writer.attributes())
    writer.quantized(y, ys, yz, rest[0])


def _conv_integer(writer: _Writer, node: Any) -> None:
    int32 = writer.onnx.TensorProto.INT32
    x, w, xz, wz = _inputs(node, 4)
    operands = []
    for value, zero, part in ((x, xz, "x"), (w, wz, "w")):
        made = writer.make("Cast", [value], part, to=int32)
        if zero:
            zero = writer.make("Cast", [zero], f"{part}_zero_point", to=int32)
            if part == "w" and writer.many(wz):
                shape = writer.constant(np.array([-1, 1, 1, 1], "int64"), "shape")
                zero = writer.make("Reshape", [zero, shape], "w_zero_points")
            made = writer.make("Sub", [made, zero], f"{part}_shifted")
        operands.append(made)
    # No valid ONNX, whose Conv takes floats only, but upstream's importer passes integers on.
    writer.make("Conv", operands, "integer", node.output[0], **writer.attributes())


def _dynamic(writer: _Writer, node: Any) -> None:
    x, (y, scale, zero) = node.input[0], node.output
    nil, top = (writer.constant(np.float32(v), n) for v, n in ((0, "zero"), (255, "top")))
    # Zero is always in the range. Not Max and Min: upstream's importer stacks their operands, and
    # its pass for layouts ends the process on stacks of scalars.
    high = writer.make("Relu", [writer.make("ReduceMax", [x], keepdims=0)], "above")
    low = writer.make("Neg", [writer.make("ReduceMin", [x], keepdims=0)])
    low = writer.make("Relu", [low], "below")
    step = writer.make("Div", [writer.make("Add", [high, low], "range"), top], "step")
    # ONNX Runtime's scale of a tensor of zeros is 1; upstream divides zero by zero.
    one = writer.constant(np.float32(1), "one")
    writer.make("Where", [writer.make("Equal", [step, nil]), one, step], "scale", scale)
    place = writer.make("Div", [low, scale], "place")
    place = writer.make("Round", [writer.make("Clip", [place, nil, top])])
    writer.make("Cast", [place], "zero_point", zero, to=writer.onnx.TensorProto.UINT8)
    writer.make("QuantizeLinear", [x, scale, zero], "quantized", y)


_STANDARD: dict[str, Callable[[_Writer, Any], None]] = {
    "ConvInteger": _conv_integer,
    "DynamicQuantizeLinear": _dynamic,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
}
_RULES: dict[str, Callable[[_Writer, Any], None]] = {
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
# Operators whose result has the type of what they read first.
_PASSING = {
    "Concat",
    "Flatten",
    "Gather",
    "MaxPool",
    "Pad",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}
