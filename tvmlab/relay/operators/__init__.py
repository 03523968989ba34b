"""The rows of the operator table, by family; importing this package fills the table."""

from . import create, elementwise, index, layout, nn, reduce, shape

__all__ = ["create", "elementwise", "index", "layout", "nn", "reduce", "shape"]
