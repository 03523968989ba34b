"""Relay's pattern language: match groups of operators in a graph, rewrite or partition them."""

from . import pattern, rewriter
from .dpl import to_dpl
from .pattern import *  # noqa: F403
from .rewriter import *  # noqa: F403

__all__ = ["to_dpl"]
__all__ += pattern.__all__
__all__ += rewriter.__all__
