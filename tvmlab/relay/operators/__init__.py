"""The rows of the operator table, by family; importing this package fills the table."""

from . import nn

__all__ = ["nn"]
