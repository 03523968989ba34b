"""Relay's ways to write a target, as today's targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from ..errors import TargetError
from ..support.target import as_target


def read(target: Any, host: Any = None) -> tvm.target.Target:
    """Read a target in any of Relay's forms.

    Parameters
    ----------
    target : str, tvm.target.Target, mapping, or a list or mapping of one such
        A string of Relay's time, a target, a description as today, or, as for ``relay.build``,
        ``{"cpu": "llvm"}``. None is the target around it (``with tvm.target.Target(...)``), and
        without one the host.
    host : as target, optional
        The target of the host's part, for devices that have one.

    Raises
    ------
    TargetError
        The target is unknown, or there are several.
    """
    if target is None:
        target = tvm.target.Target.current(allow_none=True)
    if isinstance(target, Mapping) and "kind" not in target:
        target = list(target.values())
    if isinstance(target, (list, tuple)):
        if len(target) != 1:
            raise TargetError(
                f"{len(target)} targets were given",
                where=repr(target),
                fix="give one; tvm.relax.transform.RealizeVDevice places parts of a model",
            )
        (target,) = target
    made = as_target(target)
    return made if host is None else as_target(tvm.target.Target(made, read(host)))
