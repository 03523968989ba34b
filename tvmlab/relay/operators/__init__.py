"""The rows of the operator table, by family; importing this package fills the table."""

from . import conv, create, elementwise, image, index, layout, nn, norm, pool, qnn, reduce, shape

__all__ = [
    "conv",
    "create",
    "elementwise",
    "image",
    "index",
    "layout",
    "nn",
    "norm",
    "pool",
    "qnn",
    "reduce",
    "shape",
]
