"""Relay's pattern language; see `tvmlab.ir.patterns`."""

from ..ir.patterns import *  # noqa: F403
from ..ir.patterns import __all__ as __all__
