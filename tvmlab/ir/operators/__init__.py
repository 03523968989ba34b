"""The rows of the operator table, by family; importing this package fills the table."""

from . import elementwise, image, index, nn, reduce, shape

__all__ = ["elementwise", "image", "index", "nn", "reduce", "shape"]
