"""Examples for the rows of quantized operators; see `tests.ir.rows`."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

import tvmlab.qnn.rows  # noqa: F401 (fills the table with the quantized operators)
from tests.ir.rows import Given, Pool, example, shape_of
from tests.ir.rows_nn import batches, convolved, dtype_of, pooled, transposed
from tvmlab.qnn import elementwise

QUANTIZED = ("int8", "uint8", "int16", "int32")
NARROW = ("int8", "uint8", "int16")
SUMS = ("int32", "int16", "int64")
ROUNDINGS = ("None", "UPWARD", "TONEAREST", "TFLITE", "ONNX")


def _scale(pool: Pool, channels: int = 1) -> relax.Expr:
    """Find a scale: a scalar, a tensor of one, or one number for each channel."""
    return pool.tensor(("float32",), pool.one_of([], [1], [channels]))


def _zero(pool: Pool, channels: int = 1) -> relax.Expr:
    return pool.tensor(("int32",), pool.one_of([], [1], [channels]))


def _both(pool: Pool, channels: int = 1) -> list[relax.Expr]:
    return [_scale(pool, channels), _zero(pool, channels)]


def _channels(pool: Pool, data: relax.Expr) -> tuple[int, int]:
    """Draw an axis, and give the number of channels along it; a scalar has one."""
    shape = shape_of(data) or [1]
    axis = pool.axis(len(shape))
    return axis, shape[axis]


@example("qnn.quantize")
def _quantize(pool: Pool) -> Given:
    data = pool.tensor(("float32", "float16"))
    axis, count = _channels(pool, data)
    rounding = pool.one_of("None", "ONNX")
    given = {"axis": axis, "out_dtype": pool.one_of(*QUANTIZED), "rounding": rounding}
    return [data, *_both(pool, count)], given


@example("qnn.dequantize")
def _dequantize(pool: Pool) -> Given:
    data = pool.tensor(QUANTIZED)
    axis, count = _channels(pool, data)
    kind = pool.one_of("float32", "float16")
    return [data, *_both(pool, count)], {"axis": axis, "out_dtype": kind}


@example("qnn.requantize")
def _requantize(pool: Pool) -> Given:
    data = pool.tensor((*QUANTIZED, "int64"))
    axis, count = _channels(pool, data)
    # Without a dtype the result has the data's, which must then be one of those.
    out = pool.one_of(*QUANTIZED, *([""] if dtype_of(data) != "int64" else []))
    scale = pool.tensor(("float32", "float64"), pool.one_of([], [1], [count]))
    return [data, scale, _zero(pool, count), *_both(pool)], {
        "axis": axis,
        "rounding": pool.one_of(*ROUNDINGS),
        "compute_dtype": pool.one_of("None", "int64", "float32", "float64"),
        "out_dtype": out,
    }


def _product(
    pool: Pool, first: Sequence[int], second: Sequence[int], channels: int
) -> list[relax.Expr]:
    """Find data and weight, of one dtype or two, their zero points and their scales."""
    data, weight = pool.tensor(NARROW, first), pool.tensor(NARROW, second)
    zeros = [_zero(pool), _zero(pool, channels)]
    return [data, weight, *zeros, _scale(pool), _scale(pool, channels)]


@example("qnn.conv2d")
def _conv2d(pool: Pool) -> Given:
    shape, kernel, given = convolved(pool, 2)
    sizes = dict(zip(given["kernel_layout"], kernel, strict=True))
    data = dict(zip(given["data_layout"], shape, strict=True))
    deep = given["groups"] > 1 and data["C"] == sizes["O"] == given["groups"]
    made = sizes["O"] * (sizes["I"] if deep else 1)
    operands = _product(pool, shape, kernel, made)
    return operands, {**given, "out_dtype": pool.one_of(*SUMS)}


@example("qnn.conv2d_transpose")
def _conv2d_transpose(pool: Pool) -> Given:
    shape, kernel, given = transposed(pool, 2)
    made = kernel[given["kernel_layout"].index("O")] * given["groups"]
    return _product(pool, shape, kernel, made), {**given, "out_dtype": pool.one_of(*SUMS)}


@example("qnn.dense")
def _dense(pool: Pool) -> Given:
    first, units = pool.sizes(1, 3), pool.integer(1, 4)
    operands = _product(pool, first, [units, first[-1]], units)
    return operands, {"units": pool.one_of(None, units), "out_dtype": pool.one_of(*SUMS)}


@example("qnn.batch_matmul")
def _batch_matmul(pool: Pool) -> Given:
    first, second, turns = batches(pool)
    return _product(pool, first, second, 1), {"out_dtype": pool.one_of(*SUMS), **turns}


@example(*(f"qnn.{name}" for name in elementwise.BINARY))
def _binary(pool: Pool) -> Given:
    lhs = pool.tensor(QUANTIZED)
    rhs = pool.tensor((dtype_of(lhs),), pool.broadcastable(shape_of(lhs)))
    if pool.flag():
        lhs, rhs = rhs, lhs
    (left, lefts), (right, rights) = _channels(pool, lhs), _channels(pool, rhs)
    operands = [lhs, rhs, *_both(pool, lefts), *_both(pool, rights), *_both(pool)]
    rounding = pool.one_of(*ROUNDINGS)
    return operands, {"lhs_axis": left, "rhs_axis": right, "rounding": rounding}


@example(*(f"qnn.{name}" for name in elementwise.UNARY))
def _unary(pool: Pool) -> Given:
    return [pool.tensor(QUANTIZED), *_both(pool), *_both(pool)], {}


@example("qnn.softmax")
def _softmax(pool: Pool) -> Given:
    operands, _ = _unary(pool)
    return operands, {"axis": _channels(pool, operands[0])[0]}


@example("qnn.leaky_relu")
def _leaky_relu(pool: Pool) -> Given:
    return _unary(pool)[0], {"alpha": pool.one_of(0.25, 0.1, 1 / 3, 0.0, -1.5)}


@example("qnn.concatenate")
def _concatenate(pool: Pool) -> Given:
    data = pool.tensor(QUANTIZED, least=1)
    shape, axis = shape_of(data), pool.axis(len(shape_of(data)))
    tensors = [data]
    for _ in range(pool.integer(0, 2)):
        shape[axis] = pool.integer(1, 4)
        tensors.append(pool.tensor((dtype_of(data),), shape))
    scales = relax.Tuple([_scale(pool) for _ in tensors])
    zeros = relax.Tuple([_zero(pool) for _ in tensors])
    return [relax.Tuple(tensors), scales, zeros, *_both(pool)], {"axis": axis}


@example("qnn.avg_pool2d")
def _avg_pool2d(pool: Pool) -> Given:
    shape, given = pooled(pool, 2, average=True)
    operands = [pool.tensor(QUANTIZED, shape), *_both(pool), *_both(pool)]
    return operands, {**given, "rounding": pool.one_of(*ROUNDINGS)}
