"""Relay's module of functions, for ``from tvmlab.relay.function import Function``."""

from .expr import Function

__all__ = ["Function"]
