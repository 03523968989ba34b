"""The rows of the operator table, by family; importing this package fills the table."""

from . import annotation, elementwise, image, index, nn, reduce, shape

__all__ = ["annotation", "elementwise", "image", "index", "nn", "reduce", "shape"]
