"""Shapes of matrix products, as Relay infers them."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from .types import Tensor, differ

__all__ = ["batch_matmul_shape", "dense_shape"]


def dense_shape(data: Tensor, weight: Tensor, units: int | None) -> tuple[list[Any] | None, Any]:
    """Infer the shape of ``data @ weight.T`` and how many units it has.

    Notes
    -----
    Relay's `DenseRel` (src/relay/op/nn/nn.h).
    """
    weight.rank(2)
    if data.ndim == 0:
        data.rank(1, 2)
    if differ(data.size(-1), weight.size(1)):
        raise ShapeError(
            f"weight has {weight.size(1)} inputs; the data of shape {data.shape} has "
            f"{data.size(-1)}",
            where=weight.where,
        )
    made = weight.size(0)
    if units is not None and differ(made, units):
        raise ShapeError(
            f"units is {units}; the weight of shape {weight.shape} makes {made}",
            where=f"{data.call}, attribute units",
        )
    made = units if made is None else made
    known = data.shape is not None and made is not None
    return [*data.shape[:-1], made] if known and data.shape else None, made


def batch_matmul_shape(x: Tensor, y: Tensor, a: dict[str, Any]) -> list[Any] | None:
    """Infer the shape of a product of batches of matrices, either transposed if so asked.

    Notes
    -----
    Relay's `BatchMatmulRel` (src/relay/op/nn/nn.h).
    """
    x.rank(3)
    y.rank(3)
    if x.shape is None or y.shape is None:
        return None
    rows, inner = x.shape[:0:-1] if a["transpose_a"] else x.shape[1:]
    other, columns = y.shape[:0:-1] if a["transpose_b"] else y.shape[1:]
    if differ(inner, other):
        raise ShapeError(
            f"{x.name} of shape {x.shape} and {y.name} of shape {y.shape} have inner sizes "
            f"{inner} and {other}",
            where=y.where,
        )
    batches = x.shape[0], y.shape[0]
    if differ(*batches) and 1 not in batches:
        raise ShapeError(
            f"{x.name} has {batches[0]} matrices, {y.name} {batches[1]}", where=y.where
        )
    one = isinstance(batches[0], int) and batches[0] == 1
    return [batches[1] if one else batches[0], rows, columns]
