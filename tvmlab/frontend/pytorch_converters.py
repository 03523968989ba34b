"""Converters of PyTorch operators that upstream's importer converts wrongly or lacks.

Upstream computes in the dtype of the first operand instead of the dtype of the result, and matrix
products in float32. It ignores ``alpha`` of sums, the scales of elu (which is also selu),
``divisor_override`` of average pooling and ``antialias``, takes other pixels for interpolation by
a factor, and returns zeros as the indices of maximum pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, sym, tirx
from tvm.ir import PrimType
from tvm.relax import op

from ..errors import UnsupportedOperatorError
from ..indices import not_below_zero
from .arithmetic import (
    by_libm,
    converted,
    equal,
    extreme,
    inverse,
    not_equal,
    place_of_extreme,
    remainder,
)

__all__ = ["CONVERTERS", "arguments", "dtype_of", "refused"]


def arguments(node: Any) -> dict[str, Any]:
    """Return a node's arguments by their names in the operator's schema, with the defaults."""
    schema = node.target._schema.arguments
    defaults: dict[str, Any] = {argument.name: argument.default_value for argument in schema}
    return {**defaults, **dict(zip(defaults, node.args, strict=False)), **node.kwargs}


def refused(node: Any, what: str, fix: str) -> UnsupportedOperatorError:
    """Return the error for a node that cannot be right."""
    return UnsupportedOperatorError(what, where=f"node {node.name!r}, {node.target}", fix=fix)


def dtype_of(value: Any) -> str:
    """Return Relax's name of the dtype of a PyTorch tensor or dtype."""
    return str(getattr(value, "dtype", value)).removeprefix("torch.")


def _operand(value: Any, node: Any, importer: Any, dtype: str = "") -> relax.Expr:
    """Return a tensor or a number in a dtype, by default that of the node's result."""
    dtype = dtype or dtype_of(node.meta["val"])
    if isinstance(value, (bool, int, float)):
        return relax.const(value, dtype)
    found = importer._retrieve_args(value)
    if isinstance(getattr(found, "ty", None), PrimType):  # a size that is known at run time
        tensor: relax.Expr = importer._prim_value_to_scalar_tensor(found, dtype)
        return tensor
    return found if str(found.ty.dtype) == dtype else op.astype(found, dtype)


def _by_upstream(node: Any, importer: Any) -> relax.Var:
    converted: relax.Var = importer.create_convert_map()[node.target.__name__](node)
    return converted


def _converted_from(dtype: Callable[[Any], str], node: Any, importer: Any) -> relax.Var:
    """Convert a node by upstream, after a cast of its tensors to a dtype."""
    kept = dict(importer.env)
    for source in node.all_input_nodes:
        if isinstance(getattr(kept[source], "ty", None), relax.TensorType):
            cast = _operand(source, node, importer, dtype(node.meta["val"]))
            if cast is not kept[source]:
                importer.env[source] = importer.block_builder.emit(cast)
    try:
        return _by_upstream(node, importer)
    finally:
        importer.env.update(kept)


def _copied(node: Any, importer: Any) -> relax.Var:
    bb, dtype = importer.block_builder, dtype_of(node.meta["val"])
    return bb.emit(converted(bb, importer.env[node.args[0]], dtype))


def _skipped(shape: Any) -> bool:
    """Return whether cat skips a tensor: of shape [0], whatever the rank of the others."""
    # To compare an open size, which is not an int, would bind it.
    return len(shape) == 1 and isinstance(shape[0], int) and shape[0] == 0


def _concatenated(node: Any, importer: Any) -> relax.Var:
    given = arguments(node)
    tensors = [x for x in given["tensors"] if not _skipped(x.meta["val"].shape)]
    parts = [_operand(x, node, importer) for x in tensors or given["tensors"]]
    return importer.block_builder.emit(op.concat(parts, given["dim"]))


def _selected(node: Any, importer: Any) -> relax.Var:
    x, axis, index = node.args
    if isinstance(index, int):
        return _by_upstream(node, importer)
    emit = importer.block_builder.emit  # the index is an element of a tensor
    found = not_below_zero(_operand(index, node, importer, "int64"), emit)
    return emit(op.take(importer.env[x], found, axis))


def _negative(node: Any, importer: Any) -> relax.Var:
    x = importer.env[node.args[0]]
    if not str(x.ty.dtype).startswith("uint"):
        return _by_upstream(node, importer)
    return importer.block_builder.emit(op.subtract(_operand(0, node, importer), x))


def _range(node: Any, importer: Any) -> relax.Var:
    if any(hasattr(value, "meta") for value in node.args):
        start, end, *more = importer.retrieve_args(node)
        step = more[0] if more else 1
        if not isinstance(step, int) or step > 0:
            return _by_upstream(node, importer)
        # Upstream infers two elements too many for a descending range.
        simplify, emit = sym.Analyzer().simplify, importer.block_builder.emit
        last = start + step * (tirx.floordiv(start - end - step - 1, -step) - 1)
        dtype = dtype_of(node.meta["val"])
        ascending = op.arange(simplify(last), simplify(start + 1), -step, dtype)
        return emit(op.flip(emit(ascending), 0))
    made = node.target(*node.args, dtype=node.meta["val"].dtype)
    return importer.block_builder.emit(relax.const(made.numpy(), dtype_of(made)))


def _in_libm(name: str, node: Any, importer: Any) -> relax.Var:
    return by_libm(importer.block_builder, name, _operand(node.args[0], node, importer))


def _softplus(node: Any, importer: Any) -> relax.Var:
    given, bb = arguments(node), importer.block_builder
    x, beta, most = (
        _operand(given[name], node, importer) for name in ("self", "beta", "threshold")
    )
    scaled = bb.emit(op.multiply(x, beta))
    smooth = op.divide(by_libm(bb, "log1p", bb.emit(op.exp(scaled))), beta)
    return bb.emit(op.where(op.greater(scaled, most), x, smooth))


def _cumulative(node: Any, importer: Any) -> relax.Var:
    if node.meta["val"].dim():
        return _converted_from(dtype_of, node, importer)
    return importer.block_builder.emit(_operand(node.args[0], node, importer))


_OF_BOOLS = {
    op.bitwise_and: op.logical_and,
    op.bitwise_or: op.logical_or,
    op.bitwise_xor: op.logical_xor,
}


def _elementwise(combine: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    """Convert a function of two operands in the dtype of its result; ``alpha`` scales the second.

    Of two bools, `and`, `or` and `xor` are logical operators. Other operators are computed on
    integers, and the result is true where it is not 0.
    """
    given, made = arguments(node), dtype_of(node.meta["val"])
    logical = _OF_BOOLS.get(combine) if made == "bool" else None
    dtype = "int8" if made == "bool" and logical is None else made
    left, right = (_operand(value, node, importer, dtype) for value in list(given.values())[:2])
    if (scale := given.get("alpha", 1)) != 1:
        right = op.multiply(right, _operand(scale, node, importer, dtype))
    result = (logical or combine)(left, right)
    return importer.block_builder.emit(result if dtype == made else op.astype(result, made))


def _compared(compare: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    """Compare two operands in the dtype to which PyTorch promotes them."""
    import torch

    values = [value.meta["val"] if hasattr(value, "meta") else value for value in node.args]
    dtype = dtype_of(torch.result_type(*values))
    if dtype == "bool" and compare not in (equal, not_equal):
        dtype = "int8"
    operands = [_operand(value, node, importer, dtype) for value in node.args]
    return importer.block_builder.emit(compare(*operands))


def _logical_not(node: Any, importer: Any) -> relax.Var:
    return importer.block_builder.emit(inverse(_operand(node.args[0], node, importer, "bool")))


def _rounded_division(node: Any, importer: Any) -> relax.Var:
    """Convert a division that rounds down or to zero as PyTorch does, from the remainder.

    A quotient such as 1 / 0.1 is rounded up to a whole number, but 0.1 is above a tenth.
    """
    a, b = (_operand(value, node, importer) for value in node.args[:2])
    mode, emit = node.kwargs["rounding_mode"], importer.block_builder.emit
    if mode is None:
        return emit(op.divide(a, b))
    if "float" not in (dtype := dtype_of(node.meta["val"])):
        return emit({"floor": op.floor_divide, "trunc": op.divide}[mode](a, b))
    quotient = emit(op.divide(a, b))
    if mode == "trunc":
        return emit(op.trunc(quotient))
    zero, one, half = (relax.const(value, dtype) for value in (0, 1, 0.5))
    rest = emit(op.mod(a, b))
    below = op.not_equal(op.less(b, zero).astype("int8"), op.less(rest, zero).astype("int8"))
    down = op.logical_and(op.not_equal(rest, zero), below)
    whole = op.divide(op.subtract(a, rest), b)
    whole = emit(op.where(down, op.subtract(whole, one), whole))
    floor = emit(op.floor(whole))
    near = op.where(op.greater(op.subtract(whole, floor), half), op.add(floor, one), floor)
    return emit(op.where(op.equal(b, zero), quotient, near))


def _power(node: Any, importer: Any) -> relax.Var:
    if "float" in dtype_of(node.meta["val"]):
        return _elementwise(op.power, node, importer)
    if isinstance(exponent := node.args[1], int) and exponent >= 0:
        return _converted_from(dtype_of, node, importer)
    raise refused(node, "an integer power that is not a constant", "compute it in float")


def _clamp(node: Any, importer: Any) -> relax.Var:
    given, emit = arguments(node), importer.block_builder.emit
    bounds, x = [given["min"], given["max"]], _operand(node.args[0], node, importer)
    numbers = all(isinstance(bound, (int, float, type(None))) for bound in bounds)
    if numbers and "float" in dtype_of(node.meta["val"]):
        low, high = (
            limit if bound is None else bound
            for bound, limit in zip(bounds, (-math.inf, math.inf), strict=True)
        )
        return emit(op.clip(x, min(low, high), high))
    for limit, bound in zip((op.maximum, op.minimum), bounds, strict=True):
        x = x if bound is None else limit(x, _operand(bound, node, importer))
    return emit(x)


def _chosen(node: Any, importer: Any) -> relax.Var:
    condition = _operand(node.args[0], node, importer, "bool")
    chosen = (_operand(value, node, importer) for value in node.args[1:])
    return importer.block_builder.emit(op.where(condition, *chosen))


def _product(node: Any, importer: Any) -> relax.Var:
    """Convert a matrix product, added to a first operand if there are three."""
    given, dtype = arguments(node), dtype_of(node.meta["val"])
    if len(found := {dtype_of(source.meta["val"]) for source in node.all_input_nodes}) > 1:
        raise refused(node, f"a product of {', '.join(sorted(found))}", "convert the operands")
    *bias, a, b = (
        _operand(value, node, importer) for value in list(given.values())[: len(node.args)]
    )
    made = op.matmul(a, b, out_dtype=dtype)
    for value, name in ((made, "alpha"), *((x, "beta") for x in bias)):
        scaled = value
        if given.get(name, 1) != 1:
            scaled = op.multiply(value, _operand(given[name], node, importer))
        made = scaled if value is made else op.add(scaled, made)
    return importer.block_builder.emit(made)


def _any(node: Any, importer: Any) -> relax.Var:
    given = arguments(node)
    whole = op.astype(_operand(node.args[0], node, importer, "bool"), "int8")
    made = op.max(whole, given.get("dim"), given.get("keepdim", False))
    return importer.block_builder.emit(op.astype(made, "bool"))


def _group_norm(node: Any, importer: Any) -> relax.Var:
    given, x = arguments(node), importer.env[node.args[0]]
    scale, offset = (
        relax.const(np.full(given["C"], filled), x.ty.dtype)
        if given[name] is None
        else importer.env[given[name]]
        for name, filled in (("weight", 1), ("bias", 0))
    )
    axes = list(range(2, x.ty.ndim))
    made = op.nn.group_norm(x, scale, offset, given["group"], 1, axes, given["eps"])
    return importer.block_builder.emit(made)


def _adaptive_max_pool(node: Any, importer: Any) -> relax.Var:
    """Take the maximum of each section, one axis after the other."""
    x, sizes = importer.env[node.args[0]], node.args[1]
    for axis, count in enumerate(sizes, x.ty.ndim - len(sizes)):
        size = int(node.args[0].meta["val"].shape[axis])
        ends = [(n * size // count, -(-(n + 1) * size // count)) for n in range(count)]
        parts = [op.strided_slice(x, [axis], [start], [end]) for start, end in ends]
        x = importer.block_builder.emit(
            op.concat([op.max(part, axis, True) for part in parts], axis)
        )
    return importer.block_builder.emit(relax.Tuple([x, op.zeros_like(x)]))


def _elu(node: Any, importer: Any) -> relax.Var:
    """Convert elu, celu and selu, which PyTorch decomposes to an elu with two scales."""
    given = arguments(node)
    x, zero = importer.env[node.args[0]], _operand(0, node, importer)
    alpha, scale, inner = (
        _operand(given[name], node, importer) for name in ("alpha", "scale", "input_scale")
    )
    bb = importer.block_builder
    below = op.multiply(alpha, by_libm(bb, "expm1", bb.emit(op.multiply(inner, x))))
    chosen = op.where(op.greater(x, zero), x, below)
    return bb.emit(op.multiply(scale, chosen))


def _nearest(node: Any, importer: Any) -> relax.Var:
    """Take the rows and columns that PyTorch itself takes of an image of this size."""
    import torch

    size, factors = (*node.args[1:], None, None)[:2]
    sizes = [*node.args[0].meta["val"].shape[2:], *node.meta["val"].shape[2:]]
    static = all(isinstance(each, int) for each in sizes)
    ratios = [sizes[2] / sizes[0], sizes[3] / sizes[1]] if static else factors or [0.5]
    if all(float(ratio).is_integer() for ratio in ratios):
        converted: relax.Var = importer._upsample_nearest2d(node)  # right for whole ratios
        return converted
    if not static:
        raise refused(node, "nearest interpolation to an open size", "export with static sizes")
    x = importer.env[node.args[0]]
    for axis in (0, 1):
        line = torch.arange(float(sizes[axis]))[None, None]
        how = {"size": size[axis]} if size else {"scale_factor": factors[axis]}
        places = torch.nn.functional.interpolate(line, mode="nearest", **how).reshape(-1)
        x = op.take(x, relax.const(places.numpy().astype("int64")), axis + 2)
    return importer.block_builder.emit(x)


def _convolution(node: Any, importer: Any) -> relax.Var:
    """Convert a convolution, also transposed, in the dtype of its result."""
    given = arguments(node)
    x, weight = importer.env[given["input"]], importer.env[given["weight"]]
    count, turned = x.ty.ndim - 2, given["transposed"]
    made = getattr(op.nn, f"conv{count}d{'_transpose' if turned else ''}")(
        *(x, weight, given["stride"], given["padding"]),
        dilation=given["dilation"],
        groups=given["groups"],
        data_layout="NC" + "DHW"[-count:],
        kernel_layout=("IO" if turned else "OI") + "DHW"[-count:],
        out_dtype=dtype_of(node.meta["val"]),
        **({"output_padding": given["output_padding"]} if turned else {}),
    )
    if given["bias"] is not None:
        bias = op.reshape(importer.env[given["bias"]], (1, -1, *[1] * count))
        made = op.add(importer.block_builder.emit(made), bias)
    return importer.block_builder.emit(made)


def _average_pool(node: Any, importer: Any) -> relax.Var:
    if arguments(node)["divisor_override"] is not None:
        raise refused(node, "divisor_override of pooling", "multiply the mean by a factor")
    return _by_upstream(node, importer)


def _reduced(reduce: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    given = arguments(node)
    x, axes = _operand(node.args[0], node, importer), given.get("dim")
    axes = axes if axes not in (None, []) and node.args[0].meta["val"].dim() else None
    bb, keep = importer.block_builder, given.get("keepdim", False)
    if reduce in (op.max, op.min):
        return bb.emit(extreme(bb, reduce, x, axes, keep))
    return bb.emit(reduce(x, axes, keep))


def _interpolated(exact: bool, node: Any, importer: Any) -> relax.Var:
    """Convert linear and cubic interpolation; `exact` if upstream's form can be right.

    Upstream takes the ratio of the sizes instead of a given factor, and ignores ``antialias``.
    PyTorch's own weights are the results of interpolating the columns of a unit matrix.
    """
    import torch

    value, made = node.args[0].meta["val"], node.meta["val"]
    sizes = [*value.shape[2:], *made.shape[2:]]
    given = arguments(node)
    factors = given.get("scale_factors")
    ratios = [sizes[2] / sizes[0], sizes[3] / sizes[1]] if factors else None
    if exact and (given["align_corners"] or ratios == factors):
        return _by_upstream(node, importer)
    if not all(isinstance(size, int) for size in sizes):
        raise refused(node, "interpolation of an open size", "export with static sizes")
    emit, x = importer.block_builder.emit, importer.env[node.args[0]]
    for axis, (size, count) in enumerate(zip(sizes[:2], sizes[2:], strict=True)):
        other = dict(given)
        # PyTorch interpolates images of one column otherwise, so these have two rows or columns.
        if given.get("output_size") is not None:
            other["output_size"] = [count, 2] if axis == 0 else [2, count]
        if factors is not None:
            other["scale_factors"] = [factors[0], 1.0] if axis == 0 else [1.0, factors[1]]
        for name in {"scales_h", "scales_w"} & {*other}:
            other[name] = given[name] if name == ("scales_h", "scales_w")[axis] else None
        unit = torch.eye(size)[:, None, :, None].expand(size, 1, size, 2)
        unit = unit if axis == 0 else unit.transpose(2, 3)
        other[next(iter(other))] = unit.contiguous()
        weights = node.target(**other).select(3 - axis, 0).reshape(size, count).numpy()
        matrix = relax.const(weights.T.copy() if axis == 0 else weights.copy(), x.ty.dtype)
        x = emit(op.matmul(*((matrix, x) if axis == 0 else (x, matrix))))
    return x


def _extreme(values: Any, places: Any, node: Any, importer: Any) -> relax.Var:
    given, x = arguments(node), importer.env[node.args[0]]
    parts = [x, relax.const(0, "int64")]
    if x.ty.ndim:
        dim, keep, bb = given["dim"], given["keepdim"], importer.block_builder
        parts = [extreme(bb, values, x, [dim], keep), place_of_extreme(places, x, dim, keep)]
    return importer.block_builder.emit(relax.Tuple(parts))


def _place(reduce: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    given, x = arguments(node), importer.env[node.args[0]]
    place = relax.const(0, "int64")
    if x.ty.ndim:
        place = place_of_extreme(reduce, x, given["dim"], given["keepdim"])
    return importer.block_builder.emit(place)


def _sorted(node: Any, importer: Any) -> relax.Var:
    given, x = arguments(node), importer.env[node.args[0]]
    places = op.argsort(x, given["dim"], given["descending"], "int64")
    places = importer.block_builder.emit(places)
    values = op.gather_elements(x, places, given["dim"])
    return importer.block_builder.emit(relax.Tuple([values, places]))


def _windows(node: Any, importer: Any) -> relax.Var:
    """Convert unfold, which takes windows of an axis and puts their elements last."""
    x, (axis, size, step) = importer.env[node.args[0]], node.args[1:]
    axis %= x.ty.ndim
    count = node.meta["val"].shape[axis]
    if not isinstance(count, int):
        raise refused(node, "unfold of an open size", "export with static sizes")
    places = np.arange(count)[:, None] * step + np.arange(size)
    taken = importer.block_builder.emit(op.take(x, relax.const(places), axis))
    order = [n for n in range(taken.ty.ndim) if n != axis + 1]
    return importer.block_builder.emit(op.permute_dims(taken, [*order, axis + 1]))


def _random(node: Any, importer: Any) -> relax.Var:
    if node.target.__name__ == "native_dropout.default" and not node.args[2]:
        return _by_upstream(node, importer)
    fix = "export module.eval(), and pass random numbers as an input"
    raise refused(node, "random numbers, which differ at each call", fix)


def _inverse_of_erf(node: Any, importer: Any) -> relax.Var:
    """Approximate the inverse of erf by Winitzki's formula, then by three steps of Halley."""
    y, emit = _operand(node.args[0], node, importer), importer.block_builder.emit
    one, two = (_operand(number, node, importer) for number in (1, 2))
    a = _operand(0.147, node, importer)
    log = emit(op.log(op.multiply(op.subtract(one, y), op.add(one, y))))
    first = emit(op.add(_operand(2 / (math.pi * 0.147), node, importer), log / two))
    inner = emit(op.subtract(op.sqrt(op.subtract(op.multiply(first, first), log / a)), first))
    x = emit(op.multiply(op.sign(y), op.sqrt(inner)))
    for _ in range(3):
        slope = _operand(2 / math.sqrt(math.pi), node, importer)
        step = op.divide(op.subtract(op.erf(x), y), op.multiply(slope, op.exp(-(x * x))))
        x = emit(op.subtract(x, op.divide(step, op.add(one, op.multiply(x, step)))))
    whole = op.equal(op.abs(y), one)
    return emit(op.where(whole, op.multiply(y, _operand(math.inf, node, importer)), x))


def _leaky(node: Any, importer: Any) -> relax.Var:
    """Convert rrelu, whose slope is the mean of its bounds if the module is not in training."""
    given = arguments(node)
    if given["training"]:
        raise refused(node, "rrelu in training", "export module.eval()")
    slope = (given["lower"] + given["upper"]) / 2
    x = op.nn.leakyrelu(importer.env[node.args[0]], slope)
    return importer.block_builder.emit(relax.Tuple([x, x]))


#: By the names that upstream's importer looks up.
CONVERTERS: dict[str, Callable[[Any, Any], relax.Var]] = {
    "_to_copy.default": _copied,
    "arange.start_step": _range,
    "cat.default": _concatenated,
    "elu.default": _elu,
    "neg.default": _negative,
    "select.int": _selected,
    "softplus.default": _softplus,
    "upsample_nearest2d.vec": _nearest,
    "convolution.default": _convolution,
    "avg_pool2d.default": _average_pool,
    "avg_pool3d.default": _average_pool,
    "upsample_bilinear2d.vec": partial(_interpolated, True),
    "upsample_bicubic2d.vec": partial(_interpolated, True),
    "_upsample_bilinear2d_aa.default": partial(_interpolated, False),
    "_upsample_bicubic2d_aa.default": partial(_interpolated, False),
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "unfold.default": _windows,
    "erfinv.default": _inverse_of_erf,
    "bernoulli.p": _random,
    "exponential.default": _random,
    "native_dropout.default": _random,
    "randn.default": _random,
    "randn_like.default": _random,
    "rrelu_with_noise_functional.default": _leaky,
    "cumsum.default": _cumulative,
    "cumprod.default": _cumulative,
    "amax.default": partial(_reduced, op.max),
    "amin.default": partial(_reduced, op.min),
    "prod.dim_int": partial(_reduced, op.prod),
    "div.Tensor_mode": _rounded_division,
    "pow.Tensor_Scalar": _power,
    "pow.Tensor_Tensor": _power,
    "pow.Scalar": _power,
    "clamp.default": _clamp,
    "clamp.Tensor": _clamp,
    "where.self": _chosen,
    "logical_not.default": _logical_not,
    "mm.default": _product,
    "bmm.default": _product,
    "addmm.default": _product,
    "baddbmm.default": _product,
    "argmax.default": partial(_place, op.argmax),
    "argmin.default": partial(_place, op.argmin),
    "max.default": partial(_reduced, op.max),
    "min.default": partial(_reduced, op.min),
    "max.dim": partial(_extreme, op.max, op.argmax),
    "min.dim": partial(_extreme, op.min, op.argmin),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "native_group_norm.default": _group_norm,
    "adaptive_max_pool2d.default": _adaptive_max_pool,
    "adaptive_max_pool3d.default": _adaptive_max_pool,
}
_KINDS = ("default", "Scalar", "Tensor", "Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor", "other")
for _names, _combine in {
    "add": op.add,
    "sub": op.subtract,
    "mul": op.multiply,
    "div": op.divide,
    "maximum max": op.maximum,
    "minimum min": op.minimum,
    "fmod": op.mod,
    "remainder": remainder,
    "atan2": op.atan2,
    "bitwise_and __and__": op.bitwise_and,
    "bitwise_or __or__": op.bitwise_or,
    "bitwise_xor __xor__": op.bitwise_xor,
    "bitwise_left_shift __lshift__": op.left_shift,
    "bitwise_right_shift __rshift__": op.right_shift,
}.items():
    for _name in _names.split():
        # The maximum and the minimum of one tensor are named max.default and min.default.
        for _kind in _KINDS[1:] if _name in ("max", "min") else _KINDS:
            CONVERTERS[f"{_name}.{_kind}"] = partial(_elementwise, _combine)
for _name, _compare in {
    "eq": equal,
    "ne": not_equal,
    "lt": op.less,
    "le": op.less_equal,
    "gt": op.greater,
    "ge": op.greater_equal,
}.items():
    for _kind in ("Scalar", "Tensor"):
        CONVERTERS[f"{_name}.{_kind}"] = partial(_compared, _compare)
for _name in (
    *("acos", "acosh", "asin", "asinh", "atan", "cos", "cosh", "erf", "exp"),
    *("log", "log10", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "prod", "sum", "mean"),
):
    for _kind in ("default", "dim_IntList", "dim"):
        CONVERTERS[f"{_name}.{_kind}"] = partial(_converted_from, dtype_of)
for _name in ("atanh", "expm1", "log1p"):
    CONVERTERS[f"{_name}.default"] = partial(_in_libm, _name)
