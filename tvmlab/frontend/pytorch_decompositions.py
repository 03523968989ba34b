"""Decompositions of PyTorch operators that TVM's importer lacks, into operators that it converts.

PyTorch traces these functions of PyTorch, so that results get PyTorch's dtypes and shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import default_decompositions

from ..errors import UnsupportedOperatorError

__all__ = ["decompositions"]

aten = torch.ops.aten


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    pairs = x.sort(dim=dim, stable=True)
    return tuple(one.narrow(dim, k - 1, 1) if keepdim else one.select(dim, k - 1) for one in pairs)


def _searchsorted(line: Any, values: Any, **given: Any) -> Any:
    """Count the elements before each value, NaN being the largest as in PyTorch's binary search."""
    if given.get("sorter") is not None:
        line = line.gather(-1, given["sorter"])
    values = (torch.full((), values) if isinstance(values, (int, float)) else values)[..., None]
    line = line if line.dim() == 1 else line.unsqueeze(-2)
    right = given.get("right") or given.get("side") == "right"
    before = ~(line > values) if right else ~(line >= values)
    return before.sum(-1, dtype=torch.int32 if given.get("out_int32") else torch.int64)


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    mask, x = torch.broadcast_tensors(mask, x)
    places = mask.reshape(-1).cumsum(0) - 1
    return torch.where(mask, source.reshape(-1)[places.clamp(0)].reshape(mask.shape), x)


def _signbit(x: Any) -> Any:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _copysign(a: Any, b: Any) -> Any:
    dtype = torch.result_type(a, b)
    size = a.to(dtype if dtype.is_floating_point else torch.float32).abs()
    sign = b if isinstance(b, torch.Tensor) else torch.full((), float(b))
    return torch.where(_signbit(sign), -size, size)


def _hypot(a: Any, b: Any) -> Any:
    """Divide by the larger operand, whose square can overflow."""
    large, small = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = small / torch.where(large == 0, 1, large)
    return torch.where(a.isinf() | b.isinf(), torch.inf, large * (1 + ratio * ratio).sqrt())


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dim = dim or list(range(x.dim()))
    return x.var(dim, correction=correction, keepdim=keepdim), x.mean(dim, keepdim)


def _slice_scatter(
    x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """Choose between the rows of both, because upstream's converter ignores the step."""
    if step == 1:
        return NotImplemented
    size = x.shape[dim]
    first, last = (
        max(0, min(size, number + size if number < 0 else number))
        for number in (start or 0, size if end is None else end)
    )
    place = torch.arange(size)
    written = (place >= first) & (place < last) & ((place - first) % step == 0)
    rows = torch.where(written, size + (place - first) // step, place)
    return torch.cat([x, source], dim).index_select(dim, rows)


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Take a mean from a sum and a count; without the own values, begin with the identity."""
    if x.dtype == torch.bool or (reduce != "mean" and include_self):
        return NotImplemented
    info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
    one = {"prod": 1, "amax": info.min, "amin": info.max}.get(reduce, 0)
    first = x if include_self else x.scatter(dim, index, one)
    if reduce != "mean":
        return first.scatter_reduce(dim, index, source, reduce)
    own = torch.ones_like(x) if include_self else torch.ones_like(x).scatter(dim, index, 0)
    count = own.scatter_add(dim, index, torch.ones_like(source))
    total = first.scatter_add(dim, index, source)
    return torch.div(total, count, rounding_mode=None if x.is_floating_point() else "floor")


def _as_strided(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    if not x.is_contiguous() or x.storage_offset():
        what, fix = "as_strided of a part or a transpose of a tensor", "use slices or reshape"
        raise UnsupportedOperatorError(what, where="the exported program", fix=fix)
    places = torch.zeros((), dtype=torch.int64)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + torch.arange(count) * step
    return x.reshape(-1)[places.reshape(-1) + (storage_offset or 0)].reshape(size)


def _no_norm(x: Any, order: float = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    return NotImplemented if order else (x != 0).sum(dim, keepdim, dtype=x.dtype)


def _for_integers(x: Any) -> Any:
    return NotImplemented if x.is_floating_point() else x != x


def _for_narrow(operator: Any) -> Callable[..., Any]:
    """Compute with int32 what TVM cannot compute with bools and narrow integers."""

    def decomposed(x: Any, *args: Any, **options: Any) -> Any:
        if x.dtype not in (torch.bool, torch.int8, torch.uint8, torch.int16):
            return NotImplemented
        made = operator(x.int(), *args, **options)
        return (made[0].to(x.dtype), made[1]) if isinstance(made, tuple) else made.to(x.dtype)

    return decomposed


_TABLE: dict[Any, Callable[..., Any]] = {
    aten._cdist_forward.default: lambda a, b, p, _: torch.linalg.vector_norm(
        a.unsqueeze(-2) - b.unsqueeze(-3), p, -1
    ),
    aten.as_strided.default: _as_strided,
    aten.bucketize.Tensor: lambda values, line, **given: _searchsorted(line, values, **given),
    aten.copysign.Scalar: _copysign,
    aten.copysign.Tensor: _copysign,
    aten.exp2.default: lambda x: 2.0**x,
    aten.fmax.default: lambda a, b: torch.where(a.isnan() | (b >= a), b, a),
    aten.fmin.default: lambda a, b: torch.where(a.isnan() | (b <= a), b, a),
    aten.hypot.default: _hypot,
    aten.isinf.default: _for_integers,
    aten.isnan.default: _for_integers,
    aten.kthvalue.default: _kthvalue,
    aten.linalg_vector_norm.default: _no_norm,
    aten.masked_scatter.default: _masked_scatter,
    aten.scatter_reduce.two: _scatter_reduce,
    aten.searchsorted.Scalar: _searchsorted,
    aten.searchsorted.Tensor: _searchsorted,
    aten.signbit.default: _signbit,
    aten.slice_scatter.default: _slice_scatter,
    aten.var_mean.correction: _var_mean,
}
for _operator in (
    *(aten.amax.default, aten.amin.default, aten.max.default, aten.max.dim, aten.min.default),
    *(aten.min.dim, aten.sign.default, aten.sort.default, aten.sort.stable, aten.topk.default),
):
    _TABLE[_operator] = _for_narrow(_operator)


def decompositions() -> Any:
    """Return PyTorch's table of decompositions, with a correction and those of this file.

    The decomposition of attention returns other strides than the operator, so that views of the
    result fail.
    """
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    table = default_decompositions()
    decompose = table[attention]

    def decomposed(*inputs: Any, **options: Any) -> Any:
        made, *others = decompose(*inputs, **options)
        return made.transpose(1, 2).contiguous().transpose(1, 2), *others

    table[attention] = decomposed
    table.update(_TABLE)
    return table
