"""Converters of PyTorch operators that upstream's importer converts wrongly or lacks.

Upstream divides integers as integers, ignores ``alpha`` of sums, the scales of elu (which is also
selu), ``divisor_override`` of average pooling and ``antialias``, takes other pixels for nearest
interpolation, and returns zeros as the indices of maximum pooling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOperatorError

__all__ = ["CONVERTERS", "arguments"]


def arguments(node: Any) -> dict[str, Any]:
    """Return a node's arguments by their names in the operator's schema, with the defaults."""
    schema = node.target._schema.arguments
    defaults: dict[str, Any] = {argument.name: argument.default_value for argument in schema}
    return {**defaults, **dict(zip(defaults, node.args, strict=False)), **node.kwargs}


def _refused(node: Any, what: str, fix: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(what, where=f"node {node.name!r}, aten.{node.target}", fix=fix)


def _operand(value: Any, node: Any, importer: Any) -> relax.Expr:
    """Return a tensor or a number in the dtype of the node's result."""
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    if isinstance(value, (bool, int, float)):
        return relax.const(value, dtype)
    found = importer.env[value]
    return found if str(found.ty.dtype) == dtype else op.astype(found, dtype)


def _combined(combine: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    """Convert a division, or a sum or difference whose second operand is scaled by ``alpha``."""
    given = arguments(node)
    left, right = (_operand(given[name], node, importer) for name in ("self", "other"))
    if (scale := given.get("alpha", 1)) != 1:
        right = op.multiply(right, _operand(scale, node, importer))
    return importer.block_builder.emit(combine(left, right))


def _elu(node: Any, importer: Any) -> relax.Var:
    """Convert elu, celu and selu, which PyTorch decomposes to an elu with two scales."""
    given = arguments(node)
    x, zero = importer.env[node.args[0]], _operand(0, node, importer)
    alpha, scale, inner = (
        _operand(given[name], node, importer) for name in ("alpha", "scale", "input_scale")
    )
    # The exponential of a large number would be infinite, so it is taken of at most 0.
    power = op.exp(op.multiply(inner, op.minimum(x, zero)))
    below = op.multiply(alpha, op.subtract(power, _operand(1, node, importer)))
    chosen = op.where(op.greater(x, zero), x, below)
    return importer.block_builder.emit(op.multiply(scale, chosen))


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
        raise _refused(node, "nearest interpolation to an open size", "export with static sizes")
    x = importer.env[node.args[0]]
    for axis in (0, 1):
        line = torch.arange(float(sizes[axis]))[None, None]
        how = {"size": size[axis]} if size else {"scale_factor": factors[axis]}
        places = torch.nn.functional.interpolate(line, mode="nearest", **how).reshape(-1)
        x = op.take(x, relax.const(places.numpy().astype("int64")), axis + 2)
    return importer.block_builder.emit(x)


def _max_pool(node: Any, importer: Any) -> relax.Var:
    if any(user.args[1] == 1 and user.users for user in node.users):
        fix = "use the values only, without return_indices"
        raise _refused(node, "the indices of max_pool2d", fix)
    converted: relax.Var = importer._max_pool2d_with_indices(node)
    return converted


def _average_pool(node: Any, importer: Any) -> relax.Var:
    if arguments(node)["divisor_override"] is not None:
        raise _refused(node, "avg_pool2d with divisor_override", "multiply the mean by a factor")
    converted: relax.Var = importer._avg_pool2d(node)
    return converted


def _reduced(reduce: Callable[..., relax.Expr], node: Any, importer: Any) -> relax.Var:
    given = arguments(node)
    x, axes = _operand(node.args[0], node, importer), given["dim"]
    axes = None if axes is None or axes == [] else axes
    return importer.block_builder.emit(reduce(x, axes, given["keepdim"]))


def _antialiased(node: Any, _: Any) -> relax.Var:
    raise _refused(node, "interpolate with antialias=True", "use antialias=False")


#: By the names that upstream's importer looks up.
CONVERTERS: dict[str, Callable[[Any, Any], relax.Var]] = {
    "elu.default": _elu,
    "upsample_nearest2d.vec": _nearest,
    "max_pool2d_with_indices.default": _max_pool,
    "avg_pool2d.default": _average_pool,
    "_upsample_bilinear2d_aa.default": _antialiased,
    "_upsample_bicubic2d_aa.default": _antialiased,
    "amax.default": partial(_reduced, op.max),
    "amin.default": partial(_reduced, op.min),
    "prod.dim_int": partial(_reduced, op.prod),
}
for _name, _combine in {"add": op.add, "sub": op.subtract, "div": op.divide}.items():
    for _kind in ("Tensor", "Scalar"):
        CONVERTERS[f"{_name}.{_kind}"] = partial(_combined, _combine)
