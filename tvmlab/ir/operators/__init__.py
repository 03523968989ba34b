"""The rows of the operator table, by family; importing this package fills the table."""

from . import (
    annotation,
    conv,
    create,
    einsum,
    elementwise,
    image,
    index,
    layout,
    nn,
    norm,
    pool,
    reduce,
    shape,
)

__all__ = [
    "annotation",
    "conv",
    "create",
    "einsum",
    "elementwise",
    "image",
    "index",
    "layout",
    "nn",
    "norm",
    "pool",
    "reduce",
    "shape",
]
