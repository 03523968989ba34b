"""Run scripts of Relay's time unchanged, in the process that asks for it.

``python -m tvmlab.relay SCRIPT.py`` installs this: imports and names that TVM lost are answered
(`names`), and TVM's objects get the attributes that they had (`objects`). What today's TVM has
works as before.
"""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Install the names and attributes in this process, for good."""
    from . import names, objects

    names.install()
    objects.install()
