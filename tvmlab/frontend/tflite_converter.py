"""Upstream's converter of TensorFlow Lite's operators, with what it refuses or gets wrong.

`tvm.relax.frontend.tflite.from_tflite` takes the class of its converter; this one is derived from
upstream's. What it does otherwise was found by comparing each quantized operator with LiteRT's
reference kernels:

- PAD, PADV2, SQUEEZE, EXPAND_DIMS, TRANSPOSE, SLICE and STRIDED_SLICE of quantized tensors are
  refused upstream; moving integers needs no arithmetic, so they are done on the integers.
- AVERAGE_POOL_2D divides integers and cuts the rest off, which is one step too near to zero in four
  results of ten; here it stands between dequantize and quantize like every other operator.
- The limits of a fused activation are rounded ties to even in double precision; LiteRT's kernels
  round ``limit / scale`` in float32, ties away from zero (CalculateActivationRangeQuantized in
  tensorflow/lite/kernels/kernel_util.cc).
- SOFTMAX leaves its factor beta out.
- FULLY_CONNECTED reads rows out of tensors of any rank in LiteRT; upstream does not flatten them.
- EXPAND_DIMS fails on any model.
- Some operators on integers are something else in LiteRT than upstream makes of them: NEG, SUM and
  REDUCE_PROD compute with the integers as they stand, whatever their zero points; MAXIMUM, MINIMUM
  and EQUAL compare integers of two scales; others have no kernel. These are refused.
- SCATTER_ND and GATHER_ND get their indices transposed, GATHER loses its batch axes, and operators
  on segments refuse ids below zero, whose rows LiteRT leaves out.
- SPARSE_TO_DENSE becomes a call that fails when it runs; refused.
- TRANSPOSE_CONV becomes a convolution in NHWC, which no pass of TVM's lowers; refused as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import (
    OperatorConverter,
    get_pad_value,
    get_tensor_name,
)

from ..errors import ModelError, UnsupportedOperatorError

__all__ = ["QuantizedConverter", "check_scales", "quantized"]

# What moves or copies integers and needs no scale.
_MOVES = ("EXPAND_DIMS", "PAD", "PADV2", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE")
# What compares or takes integers as they are: right where the scales are one.
_ALIKE = ("EQUAL", "MAXIMUM", "MINIMUM", "NOT_EQUAL")
# What upstream lets pass, and LiteRT has no kernel for or computes otherwise.
_OTHERWISE = {
    *("NEG", "SUM", "REDUCE_PROD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2"),
    *("SIN", "COS", "TAN", "CEIL", "FLOOR", "ROUND"),
}
_LIMITS: dict[str, tuple[float, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
# What may be quantized, by the numbers of TensorType in TensorFlow Lite's schema.
_DTYPES = {2: "int32", 3: "uint8", 4: "int64", 7: "int16", 9: "int8"}


class QuantizedConverter(OperatorConverter):  # type: ignore[misc]
    """Upstream's converter; its errors say which operator of the model they are about."""

    _SUPPORTED_QUANTIZED_OPS = (OperatorConverter._SUPPORTED_QUANTIZED_OPS | {*_MOVES}) - _OTHERWISE

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        from tflite import Padding

        self._padding = {Padding.SAME: "SAME", Padding.VALID: "VALID"}
        self.convert_map: dict[str, Callable[..., Any]] = {
            kind: self._named(kind, convert) for kind, convert in self.convert_map.items()
        }

    def convert_gather_nd(self, op: Any) -> relax.Expr:
        """Convert GATHER_ND; upstream transposes the coordinates, as Relay had them."""
        data, indices = map(self.get_tensor_expr, self.get_input_tensors(op))
        return relax.op.gather_nd(data, relax.op.astype(indices, "int64"))

    def convert_scatter_nd(self, op: Any) -> relax.Expr:
        """Convert SCATTER_ND, which adds at repeated indices; upstream transposes the indices."""
        indices, updates, shape = self.get_input_tensors(op)
        if self.has_expr(shape.tensor_idx):
            raise tvm.error.OpNotImplemented("its shape is not constant")
        into = relax.op.zeros(
            self.get_tensor_value(shape).tolist(), self.get_tensor_type_str(updates.tensor.Type())
        )
        places = relax.op.astype(self.get_tensor_expr(indices), "int64")
        return relax.op.scatter_nd(into, places, self.get_tensor_expr(updates), "add")

    def convert_sparse_to_dense(self, op: Any) -> Any:
        """Refuse SPARSE_TO_DENSE, because what upstream makes of it fails at run time."""
        raise tvm.error.OpNotImplemented("TVM has no function for it")

    def convert_gather(self, op: Any) -> relax.Expr:
        """Convert GATHER; upstream ignores its batch axes, and reads its indices as int32."""
        options = _options(op, "GatherOptions")
        if not options.BatchDims():
            taken = super().convert_gather(op)
            place = self.get_input_tensors(op)[1].tensor_idx
            if not self.has_expr(place):
                return taken
            return relax.op.take(taken.args[0], self.get_expr(place), taken.attrs.axis)
        data, indices = map(self.get_tensor_expr, self.get_input_tensors(op))
        rank, more = data.ty.ndim, indices.ty.ndim
        axis, batch = options.Axis() % rank, options.BatchDims() % more
        between, rest = list(range(batch, axis)), list(range(axis + 1, rank))
        data = relax.op.permute_dims(data, [*range(batch), axis, *between, *rest])
        places = relax.op.expand_dims(relax.op.astype(indices, "int64"), [more])
        made = relax.op.gather_nd(data, places, batch)
        # The axes of the indices stand where the indexed one did.
        moved = range(more, more + len(between))
        last = range(more + len(between), more + len(between) + len(rest))
        return relax.op.permute_dims(made, [*range(batch), *moved, *range(batch, more), *last])

    def _convert_segment_op(self, op: Any, op_name: str, reduction: str) -> relax.Expr:
        """Convert an operator on segments; rows whose segment is below zero are left out."""
        made = super()._convert_segment_op(op, op_name, reduction)
        _, segments, data = made.args
        result = self.get_output_tensors(op)[0].tensor
        count, *row = map(int, result.ShapeAsNumpy())
        base = self._get_segment_scatter_base(
            [count + 1, *row], self.get_tensor_type_str(result.Type()), reduction
        )
        below = relax.const(-1, "int64")
        moved = relax.op.subtract(
            relax.op.maximum(relax.op.astype(segments, "int64"), below), below
        )
        return relax.op.strided_slice(
            relax.op.scatter_nd(base, moved, data, reduction), [0], [1], [count + 1]
        )

    def convert_embedding_lookup(self, op: Any) -> relax.Expr:
        """Convert EMBEDDING_LOOKUP; upstream takes the two operands for each other."""
        indices, data = map(self.get_tensor_expr, self.get_input_tensors(op))
        return relax.op.take(data, indices, 0)

    def _named(self, kind: str, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a conversion so that whatever goes wrong in it names the operator."""

        def named(op: Any) -> Any:
            try:
                if kind in _MOVES:
                    self._same_scales(op)
                elif kind in _ALIKE:
                    self._alike(op)
                made = convert(op=op)
                # Types are inferred here, where an error can still be given its place.
                return made if made is None else self.bb.normalize(made)
            except ModelError:
                raise
            except NotImplementedError as error:
                raise UnsupportedOperatorError(
                    f"TVM cannot import a TensorFlow Lite operator: {_line(error)}",
                    where=self._place(kind, op),
                    fix="convert the model again without it",
                ) from error
            except Exception as error:  # asserts, and whatever damage leads to
                raise ModelError(
                    f"the TensorFlow Lite model is damaged, or TVM's importer failed on {kind}: "
                    f"{error!r}",
                    where=self._place(kind, op),
                    fix="run it in LiteRT to see whether the model itself is at fault",
                ) from error

        return named

    def _place(self, kind: str, op: Any) -> str:
        outputs = [get_tensor_name(self.subgraph, i) for i in op.OutputsAsNumpy()]
        return f"{kind} giving {', '.join(map(repr, outputs))}"

    def check_unsupported_ops(self) -> None:
        """Refuse what has no converter, by name and with its places in the model.

        Raises
        ------
        UnsupportedOperatorError
            An operator is unknown, or has quantized tensors and no quantized form here.
        """
        try:
            super().check_unsupported_ops()
        except tvm.error.OpNotImplemented as error:
            kinds = set(re.findall(r"'([A-Z0-9_]+)'", str(error)))
            operators = [self.subgraph.Operators(i) for i in range(self.subgraph.OperatorsLength())]
            places = [
                self._place(kind, op)
                for op in operators
                if (kind := self.get_op_code_str(op)) in kinds
            ]
            fix = "convert the model again without it"
            if "quantiz" in str(error):
                names = ", ".join(sorted(self._SUPPORTED_QUANTIZED_OPS))
                fix = f"quantize the model fully to int8; quantized operators supported: {names}"
            raise UnsupportedOperatorError(
                f"TVM cannot import a TensorFlow Lite operator: {_line(error)}",
                where="; ".join(places) or None,
                fix=fix,
            ) from error

    def _same_scales(self, op: Any) -> None:
        """Refuse to move integers from one scale to another."""
        source, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        if (source.qnn_params is None) != (result.qnn_params is None) or (
            source.qnn_params and not self.has_same_qnn_params(source, result)
        ):
            raise tvm.error.OpNotImplemented("its input and output have different scales")

    def _alike(self, op: Any) -> None:
        """Refuse to compare integers of different scales, or to give the greater as of a third."""
        tensors = self.get_input_tensors(op)
        if self.get_op_code_str(op) in ("MAXIMUM", "MINIMUM"):
            tensors = [*tensors, *self.get_output_tensors(op)]
        first = tensors[0]
        for other in tensors[1:]:
            if first.qnn_params and not self.has_same_qnn_params(first, other):
                raise tvm.error.OpNotImplemented("it has tensors of different scales")

    def convert_transpose_conv(self, op: Any) -> Any:
        """Refuse a transposed convolution, which TVM lowers in NCHW only."""
        raise tvm.error.OpNotImplemented("TVM has no transposed convolution in NHWC")

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """Limit integers to the range of a fused activation, rounded as LiteRT rounds it."""
        kind = self.activation_fn_type[fused_activation_fn]
        if kind == "NONE":
            return expr
        if kind not in _LIMITS:
            raise tvm.error.OpNotImplemented(f"the fused activation {kind} on integers")
        info = np.iinfo(dtype)
        low, high = _LIMITS[kind]
        least = max(info.min, _steps(low, scale) + zero_point)
        most = info.max if high is None else min(info.max, _steps(high, scale) + zero_point)
        return relax.op.clip(expr, float(least), float(most))

    def convert_pool2d(self, op: Any, pool_type: str) -> Any:
        """Average in float between dequantize and quantize; other pools as upstream does."""
        source, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        if pool_type != "average" or not source.qnn_params or not result.qnn_params:
            return super().convert_pool2d(op, pool_type)
        self._same_scales(op)
        options = _options(op, "Pool2DOptions")
        window = [options.FilterHeight(), options.FilterWidth()]
        strides = [options.StrideH(), options.StrideW()]
        sides = [(0, 0), (0, 0)]
        if self._padding[options.Padding()] == "SAME":
            sizes = source.tensor.ShapeAsNumpy()[1:3]
            sides = [
                get_pad_value(*map(int, row)) for row in zip(sizes, window, strides, strict=True)
            ]
        made = relax.op.nn.avg_pool2d(
            self.dequantize(self.get_tensor_expr(source), source),
            window,
            strides,
            [*next(zip(*sides, strict=True)), *(after for _, after in sides)],
            layout="NHWC",
            count_include_pad=False,  # LiteRT divides by the values inside the picture
        )
        return self.convert_qnn_fused_activation_function(
            self.quantize(made, result),
            options.FusedActivationFunction(),
            result.qnn_params["scale"].value.numpy().item(),
            result.qnn_params["zero_point"].value.numpy().item(),
            self.get_tensor_type_str(result.tensor.Type()),
        )

    def convert_fully_connected(self, op: Any) -> Any:
        """Flatten what is read to rows as long as the weights' first."""
        source, weight = self.get_input_tensors(op)[:2]
        shape = source.tensor.ShapeAsNumpy()
        if _options(op, "FullyConnectedOptions").KeepNumDims() or np.size(shape) == 2:
            return super().convert_fully_connected(op)
        name, table = get_tensor_name(self.subgraph, source.tensor_idx), self.exp_tab.exprs
        before = table.get(name)
        length = int(weight.tensor.ShapeAsNumpy()[1])
        table[name] = relax.op.reshape(self.get_tensor_expr(source), (-1, length))
        try:
            return super().convert_fully_connected(op)
        finally:
            table.pop(name)
            if before is not None:
                table[name] = before

    def convert_expand_dims(self, op: Any) -> Any:
        """Insert an axis; upstream calls the operator with an argument too many."""
        source, axis = self.get_input_tensors(op)
        place = int(self.get_tensor_value(axis).reshape(-1)[0])
        return relax.op.expand_dims(self.get_tensor_expr(source), [place])

    def convert_softmax(self, op: Any) -> Any:
        """Multiply by beta first, where it is not 1."""
        beta = _options(op, "SoftmaxOptions").Beta()
        if beta == 1.0:
            return super().convert_softmax(op)
        source, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        x = self.get_tensor_expr(source)
        x = self.dequantize(x, source) if source.qnn_params else x
        y = relax.op.nn.softmax(relax.op.multiply(x, relax.const(beta, "float32")), -1)
        return self.quantize(y, result) if result.qnn_params else y


def check_scales(model: Any) -> None:
    """Refuse scales and zero points that no quantizer makes.

    Parameters
    ----------
    model : tflite.Model
        The model; its first graph is looked at.

    Raises
    ------
    ModelError
        A scale is not positive and finite, a zero point is out of its type's range, or there are
        more or fewer scales than channels.
    """
    graph = model.Subgraphs(0)
    for i in range(graph.TensorsLength()):
        tensor = graph.Tensors(i)
        found = tensor.Quantization()
        dtype = _DTYPES.get(tensor.Type(), "")
        if found is None or not found.ScaleLength() or not dtype:
            continue
        name = get_tensor_name(graph, i)
        scale = np.asarray(found.ScaleAsNumpy())
        zero = np.asarray(found.ZeroPointAsNumpy()).reshape(-1)
        bad = ~np.isfinite(scale) | (scale <= 0)
        if bad.any():
            raise _wrong(f"a scale of {scale[bad][0]}, not positive and finite", name)
        info = np.iinfo(dtype)
        bad = (zero < info.min) | (zero > info.max)
        if bad.any():
            raise _wrong(f"a zero point of {zero[bad][0]}, out of {dtype}'s range", name)
        if len(scale) == 1:
            continue
        axis = found.QuantizedDimension()
        shape = np.atleast_1d(tensor.ShapeAsNumpy()).tolist()
        if not 0 <= axis < len(shape) or len(scale) != shape[axis]:
            raise _wrong(f"{len(scale)} scales along axis {axis} of shape {shape}", name)


def quantized(model: Any) -> bool:
    """Say whether a model has values in quantized integers.

    Parameters
    ----------
    model : tflite.Model
        The model.

    Returns
    -------
    bool
        Whether an int8, uint8 or int16 tensor of its first graph has a scale.
    """
    graph = model.Subgraphs(0)
    for i in range(graph.TensorsLength()):
        tensor = graph.Tensors(i)
        found = tensor.Quantization()
        kind = _DTYPES.get(tensor.Type(), "")
        if found is not None and found.ScaleLength() and kind in ("int8", "uint8", "int16"):
            return True
    return False


def _options(op: Any, kind: str) -> Any:
    """Read an operator's table of options."""
    import tflite

    table, options = op.BuiltinOptions(), getattr(tflite, kind)()
    options.Init(table.Bytes, table.Pos)
    return options


def _steps(limit: float, scale: float) -> int:
    """Give a real number's distance from zero in steps of a scale, rounded as LiteRT does."""
    ratio = float(np.float32(limit) / np.float32(scale))
    return int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _wrong(why: str, name: str) -> ModelError:
    return ModelError(
        f"a quantized tensor is wrong: {why}",
        where=f"tensor {name!r}",
        fix="convert the model again, with representative data",
    )
