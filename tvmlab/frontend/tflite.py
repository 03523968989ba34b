"""Import TensorFlow Lite into Relax, through upstream's importer.

`tvm.relax.frontend.tflite.from_tflite` takes a converter class; the class here extends upstream's.
Its changes come from a comparison of each quantized operator with LiteRT's reference
kernels:

- PAD, PADV2, SQUEEZE, EXPAND_DIMS, TRANSPOSE, SLICE and STRIDED_SLICE of quantized tensors are
  refused by upstream; here they move the stored integers, which needs no arithmetic.
- AVERAGE_POOL_2D truncates the quotient of integers upstream, which is one step too close to zero
  in four of ten results; here it computes in float between dequantize and quantize.
- The limits of a fused activation are rounded ties to even in double precision; LiteRT's kernels
  round ``limit / scale`` in float32, ties away from zero (CalculateActivationRangeQuantized in
  tensorflow/lite/kernels/kernel_util.cc).
- SOFTMAX ignores the factor beta upstream.
- FULLY_CONNECTED flattens inputs of any rank to rows in LiteRT; upstream does not flatten them.
- EXPAND_DIMS fails on any model.
- Some operators on integers differ between upstream and LiteRT: in LiteRT, NEG, SUM and
  REDUCE_PROD compute with the stored integers and ignore the zero points; MAXIMUM, MINIMUM
  and EQUAL compare integers of two scales; others have no kernel. These are refused.
- SCATTER_ND and GATHER_ND transpose their indices upstream, GATHER loses its batch axes, and
  operators on segments refuse negative ids, for which LiteRT skips the rows.
- SPARSE_TO_DENSE becomes a call that fails at run time, so it is refused.
- TRANSPOSE_CONV becomes a convolution in NHWC that no pass of TVM lowers, so it is refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.frontend.tflite.tflite_frontend import (
    OperatorConverter,
    from_tflite,
    get_pad_value,
    get_tensor_name,
)

from ..errors import ModelError, UnsupportedOperatorError
from ..indices import NormalizeIndices
from ..ir.dialect import OUTPUT_NAMES
from ..support.extras import need
from .arithmetic import equal, inverse, not_equal
from .checks import check_scales

__all__ = ["import_bytes"]

# Operators that move or copy integers and need no scale.
_MOVES = ("EXPAND_DIMS", "PAD", "PADV2", "SLICE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE")
# The numbers of inputs and outputs that must share one scale, because the operator copies integers.
_ONE_SCALE = {
    **dict.fromkeys(_MOVES, (1, 1)),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), (2, 0)),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (2, 1)),
}
# Operators that upstream accepts, and LiteRT has no kernel for or computes differently.
_OTHERWISE = {
    *("NEG", "SUM", "REDUCE_PROD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2"),
    *("SIN", "COS", "TAN", "CEIL", "FLOOR", "ROUND"),
}
# Operators that upstream converts to calls that fail when they are compiled or run.
_REFUSED = {
    "SPARSE_TO_DENSE": "TVM has no function for it",
    "TRANSPOSE_CONV": "TVM has no transposed convolution in NHWC",
}
_LIMITS = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}
# Dtypes that can be quantized, by the numbers of TensorType in TensorFlow Lite's schema.
_DTYPES = {2: "int32", 3: "uint8", 4: "int64", 7: "int16", 9: "int8"}


def import_bytes(data: bytes, *, where: str) -> IRModule:
    """Import the content of a TensorFlow Lite file; see `tvmlab.load`.

    ``main`` keeps the file's NHWC layout. If the model is quantized, the attribute
    ``qnn.rounding`` of ``main`` is "TFLITE". `where` names the file in errors.
    """
    tflite = need("tflite", extra="tflite")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = tflite.Model.GetRootAsModel(data, 0)
            quantized = _check_scales(model, where)
            mod = from_tflite(model, op_converter=_Converter)
            # Upstream lists the weights here, although they are constants of the function.
            main = mod["main"].without_attr("params").with_attr(OUTPUT_NAMES, _outputs(model))
            mod["main"] = main.with_attr("qnn.rounding", "TFLITE") if quantized else main
            normalize: Any = NormalizeIndices(from_end=False)
            return normalize(mod)
    except ModelError:
        raise
    except Exception as error:
        place = ": ".join([where, *getattr(error, "__notes__", [])])
        if isinstance(error, NotImplementedError):
            what = f"TVM cannot import a TensorFlow Lite operator: {' '.join(str(error).split())}"
            fix = "convert the model again without it, or quantize all of it to int8"
            raise UnsupportedOperatorError(what, where=place, fix=fix) from error
        # Reading a damaged FlatBuffer can raise errors of any class: struct, index, assertion.
        what = f"the TensorFlow Lite model is damaged, or TVM's importer failed on it: {error!r}"
        fix = "compare its size and checksum with its source, or run it in LiteRT"
        raise ModelError(what, where=place, fix=fix) from error


def _outputs(model: Any) -> list[str]:
    """Return the names of the outputs in the file."""
    graph = model.Subgraphs(0)
    tensors = [graph.Tensors(int(place)) for place in graph.OutputsAsNumpy()]
    return [(tensor.Name() or b"").decode(errors="replace") for tensor in tensors]


class _Converter(OperatorConverter):  # type: ignore[misc]
    """Upstream's converter, with errors that name the operator of the model."""

    _SUPPORTED_QUANTIZED_OPS = (OperatorConverter._SUPPORTED_QUANTIZED_OPS | {*_MOVES}) - _OTHERWISE

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        from tflite import Padding

        self._padding = {Padding.SAME: "SAME", Padding.VALID: "VALID"}
        for kind, compare in {"EQUAL": equal, "NOT_EQUAL": not_equal}.items():
            self.convert_map[kind] = partial(
                self._convert_elemwise, relax_op=compare, comparison_op=True
            )
        self.convert_map: dict[str, Callable[..., Any]] = {
            kind: self._named(kind, convert) for kind, convert in self.convert_map.items()
        }

    def convert_logical_not(self, op: Any) -> relax.Expr:
        return inverse(self.get_tensor_expr(self.get_input_tensors(op)[0]))

    def convert_gather_nd(self, op: Any) -> relax.Expr:
        """Convert GATHER_ND; upstream transposes the coordinates into Relay's order."""
        data, indices = map(self.get_tensor_expr, self.get_input_tensors(op))
        return relax.op.gather_nd(data, relax.op.astype(indices, "int64"))

    def convert_scatter_nd(self, op: Any) -> relax.Expr:
        """Convert SCATTER_ND, which sums repeated indices; upstream transposes the indices."""
        indices, updates, shape = self.get_input_tensors(op)
        if self.has_expr(shape.tensor_idx):
            raise tvm.error.OpNotImplemented("its shape is not constant")
        into = relax.op.zeros(
            self.get_tensor_value(shape).tolist(), self.get_tensor_type_str(updates.tensor.Type())
        )
        places = relax.op.astype(self.get_tensor_expr(indices), "int64")
        return relax.op.scatter_nd(into, places, self.get_tensor_expr(updates), "add")

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
        # The axes of the indices replace the indexed axis.
        moved = range(more, more + len(between))
        last = range(more + len(between), more + len(between) + len(rest))
        return relax.op.permute_dims(made, [*range(batch), *moved, *range(batch, more), *last])

    def _convert_segment_op(self, op: Any, op_name: str, reduction: str) -> relax.Expr:
        """Convert an operator on segments; rows with a negative segment id are skipped."""
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
        """Convert EMBEDDING_LOOKUP; upstream swaps the two operands."""
        indices, data = map(self.get_tensor_expr, self.get_input_tensors(op))
        return relax.op.take(data, indices, 0)

    def _named(self, kind: str, convert: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a conversion so that its errors name the operator."""

        def named(op: Any) -> Any:
            try:
                if kind in _REFUSED:
                    raise tvm.error.OpNotImplemented(_REFUSED[kind])
                if kind in _ONE_SCALE:
                    self._one_scale(op, *_ONE_SCALE[kind])
                made = convert(op=op)
                # Infer the types here, so that an error in them names this operator.
                return made if made is None else self.bb.normalize(made)
            except Exception as error:
                outputs = [get_tensor_name(self.subgraph, i) for i in op.OutputsAsNumpy()]
                error.add_note(f"{kind} giving {', '.join(map(repr, outputs))}")
                raise

        return named

    def _one_scale(self, op: Any, inputs: int = 1, outputs: int = 1) -> None:
        """Refuse an operator on integers if its first inputs and outputs have different scales."""
        tensors = self.get_input_tensors(op)[:inputs] + self.get_output_tensors(op)[:outputs]
        first = tensors[0]
        for other in tensors[1:]:
            if (first.qnn_params is None) != (other.qnn_params is None) or (
                first.qnn_params and not self.has_same_qnn_params(first, other)
            ):
                raise tvm.error.OpNotImplemented("its tensors have different scales")

    def convert_qnn_fused_activation_function(
        self, expr: Any, fused_activation_fn: int, scale: float, zero_point: int, dtype: str
    ) -> Any:
        """Clip integers to the range of a fused activation, rounded like LiteRT."""
        kind = self.activation_fn_type[fused_activation_fn]
        if kind == "NONE":
            return expr
        if kind not in _LIMITS:
            raise tvm.error.OpNotImplemented(f"the fused activation {kind} on integers")
        info = np.iinfo(dtype)
        low, high = _LIMITS[kind]
        least = max(info.min, _steps(low, scale) + zero_point)
        most = info.max if high == math.inf else min(info.max, _steps(high, scale) + zero_point)
        return relax.op.clip(expr, float(least), float(most))

    def convert_pool2d(self, op: Any, pool_type: str) -> Any:
        """Average in float between dequantize and quantize; convert other pools like upstream."""
        source, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        if pool_type != "average" or not source.qnn_params or not result.qnn_params:
            return super().convert_pool2d(op, pool_type)
        self._one_scale(op)
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
            count_include_pad=False,  # LiteRT divides by the number of values inside the image
        )
        return self.convert_qnn_fused_activation_function(
            self.quantize(made, result),
            options.FusedActivationFunction(),
            result.qnn_params["scale"].value.numpy().item(),
            result.qnn_params["zero_point"].value.numpy().item(),
            self.get_tensor_type_str(result.tensor.Type()),
        )

    def convert_fully_connected(self, op: Any) -> Any:
        """Flatten the input to rows as long as those of the weights, then convert."""
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
        """Convert EXPAND_DIMS; upstream calls the operator with one argument too many."""
        source, axis = self.get_input_tensors(op)
        place = int(self.get_tensor_value(axis).reshape(-1)[0])
        return relax.op.expand_dims(self.get_tensor_expr(source), [place])

    def convert_softmax(self, op: Any) -> Any:
        """Convert SOFTMAX, with its factor beta if beta is not 1."""
        beta = _options(op, "SoftmaxOptions").Beta()
        if beta == 1.0:
            return super().convert_softmax(op)
        source, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        x = self.get_tensor_expr(source)
        x = self.dequantize(x, source) if source.qnn_params else x
        y = relax.op.nn.softmax(relax.op.multiply(x, relax.const(beta, "float32")), -1)
        return self.quantize(y, result) if result.qnn_params else y


def _check_scales(model: Any, where: str) -> bool:
    """Refuse invalid scales and zero points of a `tflite.Model`.

    Returns whether values of its first graph are quantized to int8, uint8 or int16.
    """
    graph, quantized = model.Subgraphs(0), False
    for i in range(graph.TensorsLength()):
        tensor = graph.Tensors(i)
        found, dtype = tensor.Quantization(), _DTYPES.get(tensor.Type(), "")
        if found is None or not found.ScaleLength() or not dtype:
            continue
        scale, zero = np.asarray(found.ScaleAsNumpy()), np.asarray(found.ZeroPointAsNumpy())
        shape = np.atleast_1d(tensor.ShapeAsNumpy()).tolist()
        place = f"{where}: tensor {get_tensor_name(graph, i)!r}"
        check_scales(scale, zero.reshape(-1), dtype, shape, found.QuantizedDimension(), where=place)
        quantized |= dtype in ("int8", "uint8", "int16")
    return quantized


def _options(op: Any, kind: str) -> Any:
    """Return an operator's table of options."""
    import tflite

    table, options = op.BuiltinOptions(), getattr(tflite, kind)()
    options.Init(table.Bytes, table.Pos)
    return options


def _steps(limit: float, scale: float) -> int:
    """Return a real number's distance from zero in steps of a scale, rounded like LiteRT."""
    ratio = float(np.float32(limit) / np.float32(scale))
    return int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))
