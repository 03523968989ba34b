"""Target strings of Relay's time, such as ``"llvm -mcpu=skylake-avx512"``, as today's targets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import tvm

from ..errors import TargetError
from ..target import as_target

__all__ = ["parse", "read"]

_LISTS = {"keys", "libs", "mattr"}


def parse(text: str) -> dict[str, Any]:
    """Take a target string apart.

    Parameters
    ----------
    text : str
        A kind and options: ``"llvm -mcpu=x86-64-v3 -num-cores=4"``. ``--`` is as good as ``-``,
        and an option without a value is true.

    Returns
    -------
    dict
        What `tvm.target.Target` takes today.

    Raises
    ------
    TargetError
        A word is no option, or there is no kind.
    """
    kind, *options = shlex.split(text) or [""]
    if not kind or kind.startswith("-"):
        raise TargetError(
            "the target names no kind of device",
            where=repr(text),
            fix="begin with a kind: 'llvm -mcpu=x86-64-v3'",
        )
    spec: dict[str, Any] = {"kind": kind}
    for option in options:
        name, given, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            raise TargetError(
                f"{option!r} is no option of a target",
                where=repr(text),
                fix="write options as -name=value",
            )
        if name in _LISTS:
            spec[name] = value.split(",")
        elif not given:
            spec[name] = True
        else:
            spec[name] = int(value) if value.lstrip("-").isdecimal() else value
    return spec


def read(target: Any, host: Any = None) -> tvm.target.Target:
    """Turn what Relay took for a target into today's.

    Parameters
    ----------
    target : str, tvm.target.Target, mapping, or a list or mapping of one such
        A string of Relay's time, a target, a description as today, or, as for ``relay.build``,
        ``{"cpu": "llvm"}``. None is the target around it (``with tvm.target.Target(...)``), and
        without one the host.
    host : as target, optional
        The target of the host's part, for devices that have one.

    Returns
    -------
    tvm.target.Target

    Raises
    ------
    TargetError
        The target is unknown, or there are several.
    """
    if target is None:
        target = tvm.target.Target.current(allow_none=True)
    if isinstance(target, (list, tuple)) and len(target) == 1:
        (target,) = target
    if isinstance(target, Mapping) and "kind" not in target and len(target) == 1:
        (target,) = target.values()
    if isinstance(target, (list, tuple)) or (isinstance(target, Mapping) and "kind" not in target):
        raise TargetError(
            "several targets were given",
            where=repr(target),
            fix="today's TVM places parts of a model with tvm.relax.transform.RealizeVDevice; "
            "give one target",
        )
    spec = parse(target) if isinstance(target, str) else target
    made = as_target(spec)
    return made if host is None else as_target(tvm.target.Target(made, read(host)))
