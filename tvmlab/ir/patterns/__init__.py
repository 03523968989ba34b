"""Relay's pattern language: find operators together in a graph, replace them, cut them out."""

from . import in_place, pattern, rewriter
from .dpl import to_dpl
from .in_place import *  # noqa: F403
from .pattern import *  # noqa: F403
from .rewriter import *  # noqa: F403

__all__ = ["to_dpl"]
__all__ += in_place.__all__
__all__ += pattern.__all__
__all__ += rewriter.__all__
