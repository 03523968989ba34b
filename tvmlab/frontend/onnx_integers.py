"""Converters for ONNX Runtime's dynamic quantization, and for weights quantized alone.

ONNX Runtime's `quantize_dynamic` makes DynamicQuantizeLinear, MatMulInteger, a cast and a product
with both scales of each matrix product; its optimizer joins these to operators of its own domain,
com.microsoft. A product of 8-bit integers with constant weights becomes ``qnn.dense``, which is
exact, and for which `tvmlab.schedule` has a rule; its zero point can be computed at run time.

MatMulNBits multiplies floats by weights of 2, 4 or 8 bits with a scale for each block of a row. The
weights stay integers, for which `tvmlab.schedule` has a product; only if the operator asks for the
accuracy of float32, or a block is not full, are they dequantized when the model is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax import op

from ..qnn import op as qnn
from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of

__all__ = ["INTEGERS"]

_BYTES = ("int8", "uint8")
# The level of accuracy that asks for float32 inputs. Others allow fewer bits, and 0 any number.
_FLOAT32 = 1


def dynamic(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Compute the scale and the zero point of a tensor's range, which includes zero."""
    x, emit = inputs[0], importer.bb.emit
    nil, one, top = (relax.const(number, "float32") for number in (0, 1, 255))
    ends = []
    for reduce in (op.max, op.min):
        # Row by row first, because rows are reduced in parallel and in vectors.
        rows = emit(reduce(x, -1)) if x.ty.ndim > 1 else x
        ends.append(emit(reduce(rows)))
    high = op.nn.relu(ends[0])
    low = emit(op.nn.relu(op.negative(ends[1])))
    step = emit(op.divide(op.add(high, low), top))
    # For a tensor of zeros ONNX Runtime uses a scale of 1; upstream divides zero by zero.
    scale = emit(op.where(op.equal(step, nil), one, step))
    zero = emit(op.astype(op.round(op.clip(op.divide(low, scale), 0, 255)), "uint8"))
    return relax.Tuple([importer.convert("QuantizeLinear", [x, scale, zero], {}), scale, zero])


def _point(importer: GraphImporter, zero: Any) -> relax.Expr | None:
    """Return a zero point as an int32 scalar, or a constant vector; None for other shapes."""
    if zero is None:
        return relax.const(0, "int32")
    if isinstance(zero, tvm.ir.GenericConst):
        value = zero.value.numpy().astype("int32")
        return const(value.reshape(()) if value.size == 1 else value.ravel())
    if sizes_of(zero) not in ([], [1]):
        return None
    return importer.bb.emit(op.reshape(importer.bb.emit(op.astype(zero, "int32")), []))


def _matmul_integer(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Multiply integers exactly: as ``qnn.dense`` if the second one is a matrix of weights."""
    a, b, a_zero, b_zero = inputs[0:4]
    weights = (
        isinstance(b, tvm.ir.GenericConst) and b.ty.ndim == 2 and 0 not in b.value.numpy().shape
    )
    if weights and a.ty.ndim > 1 and {str(a.ty.dtype), str(b.ty.dtype)} <= {*_BYTES}:
        zero, own = (_point(importer, point) for point in (a_zero, b_zero))
        single = zero is not None and not zero.ty.ndim
        if single and isinstance(own, tvm.ir.GenericConst):
            rows = np.ascontiguousarray(b.value.numpy().T)
            one = relax.const(1.0, "float32")
            made: relax.Expr = qnn.dense(a, const(rows), zero, own, one, one)
            return made
    return importer.by_upstream("MatMulInteger", inputs, attributes)


def _scaled(
    importer: GraphImporter, sums: relax.Expr, scales: tuple[Any, Any], bias: Any
) -> relax.Expr:
    """Convert sums to real numbers, and add a bias."""
    scale = importer.bb.emit(op.multiply(*scales))
    real = importer.bb.emit(op.astype(importer.bb.normalize(sums), "float32"))
    made = op.multiply(real, scale)
    return made if bias is None else op.add(importer.bb.emit(made), bias)


def _dynamic_matmul(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Convert DynamicQuantizeMatMul, whose first operand is quantized by its range."""
    a, b, b_scale, b_zero, bias = inputs[0:5]
    whole, scale, zero = importer.convert("DynamicQuantizeLinear", [a], {}).fields
    whole = importer.bb.emit(importer.bb.normalize(whole))
    sums = importer.convert("MatMulInteger", [whole, b, zero, b_zero], {})
    return _scaled(importer, sums, (scale, b_scale), bias)


def _matmul_to_float(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs[0:7]
    sums = importer.convert("MatMulInteger", [a, b, a_zero, b_zero], {})
    return _scaled(importer, sums, (a_scale, b_scale), bias)


def _unpacked(
    data: npt.NDArray[np.uint8], bits: int, shape: tuple[int, ...]
) -> npt.NDArray[np.uint8]:
    """Unpack numbers of a few bits, the lowest bits first, and crop the rows to a shape."""
    each = 8 // bits
    parts = np.stack([(data >> (bits * i)) & (2**bits - 1) for i in range(each)], -1)
    return parts.reshape(*data.shape[:-1], -1)[tuple(map(slice, shape))]


def _matmul_bits(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> relax.Expr:
    """Convert MatMulNBits with constant weights."""
    a, packed, scales, zeros, order, bias = inputs[0:6]
    bits, block = int(attributes.get("bits", 4)), int(attributes["block_size"])
    rows, inputs_ = int(attributes["N"]), int(attributes["K"])
    values = [None if one is None else importer.value(one) for one in (packed, scales, zeros)]
    given = (packed, scales, zeros)
    unknown = any(x is not None and v is None for x, v in zip(given, values, strict=True))
    if bits not in (2, 4, 8) or order is not None or unknown:
        what = "with weights of other than 2, 4 or 8 bits, in another order, or not constant"
        raise importer.unsupported(what, "quantize the weights again")
    data, scale, zero = values
    assert data is not None
    assert scale is not None
    blocks = -(-inputs_ // block)
    whole = _unpacked(data.reshape(rows, blocks, -1), bits, (rows, blocks, block))
    if zero is None:
        zero = np.full((rows, blocks), 2 ** (bits - 1), "float32")
    elif zero.dtype == np.uint8:
        zero = _unpacked(zero.reshape(rows, -1), bits, (rows, blocks)).astype("float32")
    shape, dtype = (rows, blocks, 1), str(a.ty.dtype)
    zero, scale = (one.reshape(shape).astype("float32") for one in (zero, scale))
    exact = int(attributes.get("accuracy_level", 0)) == _FLOAT32
    if exact or dtype != "float32" or blocks * block > inputs_:
        real = ((whole.astype("float32") - zero) * scale).reshape(rows, -1)[:, :inputs_]
        weights: relax.Expr = const(np.ascontiguousarray(real.T.astype(dtype)))
    else:
        emit = importer.bb.emit
        wide = emit(op.astype(const(np.ascontiguousarray(whole)), dtype))
        scaled = emit(op.multiply(emit(op.subtract(wide, const(zero))), const(scale)))
        weights = emit(op.permute_dims(emit(op.reshape(scaled, (rows, inputs_)))))
    made = importer.convert("MatMul", [a, weights], {})
    return made if bias is None else op.add(importer.bb.emit(made), bias)


#: The converters of this module.
INTEGERS: dict[str, Callable[..., Any]] = {
    "DynamicQuantizeLinear": dynamic,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulInteger": _matmul_integer,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MatMulNBits": _matmul_bits,
}
