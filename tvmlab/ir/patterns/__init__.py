"""Relay's pattern language: find operators together in a graph, replace them, cut them out."""

from . import pattern, rewriter
from .dpl import to_dpl
from .pattern import *  # noqa: F403
from .rewriter import *  # noqa: F403

__all__ = ["to_dpl"]
__all__ += pattern.__all__
__all__ += rewriter.__all__
