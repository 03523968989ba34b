"""The stand-in for the TVM of Relay's time, in the process that asks for it.

``python -m tvmlab.relay SCRIPT.py`` installs it. Modules that TVM lost are put before Python's
import system (`modules`), names that its modules lost are answered (`names`), and its objects get
the attributes that they had (`objects`). What today's TVM has works as before.
"""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Install the stand-in in this process; it stays."""
    from . import modules, names, objects

    modules.install()
    names.install()
    objects.install()
