"""ONNX's quantized operators as float operators between DequantizeLinear and QuantizeLinear.

ONNX Runtime's static quantizer has two formats: QDQ, which upstream imports, and QOperator, with
one operator for dequantize, compute, quantize: QLinearConv and QLinearMatMul of ONNX, and QGemm,
QLinearAdd and others of ONNX Runtime's domain com.microsoft. Both say the same. Here the second is
rewritten into the first, in a copy of the model's graph.

ConvInteger and DynamicQuantizeLinear are no such pairs: they are written out in the operators that
they stand for, the first in int32, which is exact. So ConvInteger and MatMulInteger reach no
operator of `tvmlab.qnn` and no instruction for int8: mostly their zero point is computed at run
time, by DynamicQuantizeLinear, and the dialect's kernels are made for constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedOperatorError
from ..support.extras import need
from .onnx_values import Values, names, nodes, subgraphs

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
    if not any(_rule(node) for node in nodes(model.graph)):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    _write(copy.graph, where, names(model.graph), None)
    return copy


def _write(graph: Any, where: str, taken: set[str], outer: Values | None) -> None:
    """Write out a graph's operators, and those of the graphs in it: branches and loop bodies."""
    old = list(graph.node)
    writer = _Writer(graph, where, taken, outer)
    del graph.node[:]
    for node in old:
        for inner in subgraphs(node):
            _write(inner, where, taken, writer.known)
        rule = _rule(node)
        if rule is None:
            writer.emit(node)
        else:
            writer.old = node
            rule(writer, node)


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
    taken : set of str
        The names that the model has, to which new ones are added.
    outer : Values, optional
        What is known around a branch.
    """

    def __init__(self, graph: Any, where: str, taken: set[str], outer: Values | None) -> None:
        onnx = need("onnx", extra="onnx")
        self.onnx, self.graph, self.where = onnx, graph, where
        self.old: Any = None  # the node that is written out just now
        self.known = Values(graph, outer)
        self.taken = taken

    def emit(self, node: Any) -> None:
        """Take a node into the graph, and note what is known of its results."""
        self.known.note(node)
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
        self.known.constant(name, tensor)
        return name

    def dequantized(self, x: str, scale: str, zero: str, part: str, axis: int | None = None) -> str:
        """Emit DequantizeLinear; `axis` is that of the channels where they may have scales."""
        attributes: dict[str, Any] = {}
        if axis is not None and not (self.known.single(scale) and self.one(zero)):
            # Also where it is not known whether there are many: for one, the axis says nothing.
            attributes["axis"] = axis
            scale = self.scales(scale, zero)
        inputs = [x, scale, *([zero] if zero else [])]
        return self.make("DequantizeLinear", inputs, f"{part}_dequantized", **attributes)

    def one(self, zero: str) -> bool:
        """Say whether a zero point is left out, or known to be one."""
        return not zero or self.known.single(zero)

    def scales(self, scale: str, zero: str) -> str:
        """Repeat one scale for many zero points: DequantizeLinear wants as many of each."""
        zeros = self.known.value(zero)
        if zeros is None or zeros.size == 1 or not self.known.single(scale):
            return scale
        value = self.known.value(scale)
        if value is not None:
            return self.constant(np.full(zeros.size, value.reshape(())), "scales")
        dtype = self.onnx.helper.tensor_dtype_to_np_dtype(self.known.types.get(scale) or 1)
        return self.make("Mul", [scale, self.constant(np.ones(zeros.size, dtype), "ones")])

    def quantized(self, y: str, scale: str, zero: str, like: str) -> None:
        """Emit QuantizeLinear to the old node's result; without a zero point, as `like` is."""
        if not zero:
            kind = self.known.types.get(like, 0)
            if not kind:
                raise self.unsupported(
                    f"without an output zero point, where the type of {like!r} is not known"
                )
            dtype = self.onnx.helper.tensor_dtype_to_np_dtype(kind)
            zero = self.constant(np.zeros(self.shape(scale), dtype), "y_zero_point")
        self.make("QuantizeLinear", [y, scale, zero], "quantized", self.old.output[0])
        self.known.types[self.old.output[0]] = self.known.types.get(zero, 0)

    def shape(self, name: str) -> tuple[int, ...]:
        """Give a constant's shape, that of a scalar for what is computed."""
        value = self.known.value(name)
        return () if value is None else tuple(value.shape)

    def product(self, left: str, right: str, factor: float = 1.0) -> str:
        """Give the scale of a bias: the product of the operands' scales, in float32."""
        a, b = self.known.value(left), self.known.value(right)
        if a is not None and b is not None:
            return self.constant((a * b * np.float32(factor)).astype("float32"), "bias_scale")
        made = self.make("Mul", [left, right], "bias_scale")
        if factor == 1.0:
            return made
        return self.make("Mul", [made, self.constant(np.float32(factor), "alpha")], "bias_scale")

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
        writer.dequantized(w, ws, wz, "w", 0),
    ]
    if bias:
        inputs.append(writer.dequantized(bias, writer.product(xs, ws), "", "bias", 0))
    y = writer.make("Conv", inputs, "float", **writer.attributes())
    writer.quantized(y, ys, yz, x)


def _matmul(writer: _Writer, node: Any) -> None:
    a, a_scale, az, b, bs, bz, ys, yz = _inputs(node, 8)
    for scale in (a_scale, bs):
        if len(writer.shape(scale)) > 1:
            raise writer.unsupported("with a scale for each of many matrices")
    # A vector has no rows to differ.
    rows = None if len(writer.known.shapes.get(a, [0, 0])) == 1 else -2
    left = writer.dequantized(a, a_scale, az, "a", rows)
    right = writer.dequantized(b, bs, bz, "b", -1)
    writer.quantized(writer.make("MatMul", [left, right], "float"), ys, yz, a)


def _gemm(writer: _Writer, node: Any) -> None:
    a, a_scale, az, b, bs, bz, bias, ys, yz = _inputs(node, 9)
    attributes = writer.attributes()
    axis = 0 if attributes.get("transB", 0) else 1
    inputs = [
        writer.dequantized(a, a_scale, az, "a"),
        writer.dequantized(b, bs, bz, "b", axis),
    ]
    if bias:
        # C counts in units of alpha * a_scale * b_scale, one for each column of the result.
        scale = writer.product(a_scale, bs, attributes.get("alpha", 1.0))
        inputs.append(writer.dequantized(bias, scale, "", "bias", -1))
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
            if part == "w" and not writer.known.single(wz):
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
