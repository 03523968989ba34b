"""Parse compilation targets: current dictionaries, and TVM's earlier strings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.target import codegen

from ..errors import TargetError
from .host import host_target, physical_cores, runtime_threads, triple_of
from .wording import telling

__all__ = ["as_target", "parse", "physical_cores", "runtime_threads", "spelled", "split_target"]

#: Names that can precede the comma of a composite target.
PARTITIONERS = ("npu",)


def as_target(target: tvm.target.Target | Mapping[str, Any] | str | None) -> tvm.target.Target:
    """Convert a user's target to a TVM target.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        None is the host. A string is a kind or a tag (``"llvm"``, ``"nvidia/nvidia-a100"``), or a
        kind and options as for Relay (``"llvm -mcpu=x86-64-v3 -num-cores=4"``); a mapping has a
        ``"kind"`` and its attributes.

    Returns
    -------
    tvm.target.Target

    Raises
    ------
    TargetError
        The kind, an attribute, the triple or the processor's name is unknown.
    """
    if target is None:
        return host_target()
    spec = dict(target) if isinstance(target, Mapping) else target
    try:
        if isinstance(spec, str) and " " in spec.strip() and not spec.lstrip().startswith("{"):
            spec = parse(spec)
        made = spec if isinstance(spec, tvm.target.Target) else tvm.target.Target(spec)
    except TargetError:
        raise
    except Exception as error:  # ValueError, TypeError or InternalError
        what = f"TVM does not know this target: {telling(error)}"
        fix = 'use a kind such as "llvm", or {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}'
        raise TargetError(what, where=repr(target), fix=f"{fix}, or leave it out") from error
    if made.kind.name == "llvm":
        _check_llvm(made)
    return made


def _check_llvm(target: tvm.target.Target) -> None:
    """Reject values of an LLVM target that TVM accepts, but LLVM or the thread pool does not."""
    mcpu, triple = str(target.attrs.get("mcpu") or "generic"), triple_of(target)
    if target.host is not None:
        as_target(target.host)
    # First, because TVM dereferences a null pointer for the instruction sets of such a triple.
    if not codegen.llvm_is_valid_cpu("generic", triple):
        what = f"LLVM cannot compile for the triple {triple!r}"
        fix = "leave mtriple out, or use one such as x86_64-linux-gnu or aarch64-linux-gnu"
    elif not codegen.llvm_is_valid_cpu(mcpu, triple):
        what = f"LLVM does not know a processor named {mcpu!r} for {triple}"
        fix = (
            "leave mcpu out, or use a name of LLVM's such as x86-64-v3, skylake-avx512, "
            "or cortex-a72 with the mtriple aarch64-linux-gnu"
        )
    elif int(target.attrs.get("num-cores", 1)) < 1:
        what = "num-cores is less than 1"
        fix = "set num-cores to the number of threads, from 1 on, or leave it out"
    else:
        return
    raise TargetError(what, where=str(target), fix=fix)


def split_target(
    target: tvm.target.Target | Mapping[str, Any] | str | None,
) -> tuple[str | None, tvm.target.Target | Mapping[str, Any] | str | None]:
    """Split a composite target such as ``"npu, llvm"``.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        The target as the user wrote it.

    Returns
    -------
    tuple of (str or None, target)
        The name of the backend, or None, and the target for the rest of the module, which is
        None for the host.

    Raises
    ------
    TargetError
        The name before the comma is not a known backend.
    """
    if not isinstance(target, str):
        return None, target
    first, comma, rest = (part.strip() for part in target.partition(","))
    if first in PARTITIONERS:
        return first, rest or None
    if not comma or not re.fullmatch(r"[A-Za-z][\w-]*", first):  # JSON, or a list in an option
        return None, target
    whole, other = (first, rest) if rest in PARTITIONERS else (rest, first)
    wanted = f"{PARTITIONERS[0]}, {whole}"
    what = f"{first!r}, before the comma, is not a known backend; known: {', '.join(PARTITIONERS)}"
    fix = f"put a known backend before the comma: {wanted!r}; or leave out {other!r} and the comma"
    raise TargetError(what, where=repr(target), fix=fix)


def parse(text: str) -> dict[str, Any]:
    """Parse a target string of TVM before 2025, such as ``"llvm -mcpu=x86-64-v3 -num-cores=4"``.

    ``--`` equals ``-``, a space equals ``=``, and an option without a value is true. Raises
    `TargetError` for an unknown option; TVM itself rejects an unknown kind or value.
    """
    kind, *words = shlex.split(text) or [""]
    spec: dict[str, Any] = {"kind": kind}
    if kind not in tvm.target.Target.list_kinds():
        return spec
    types = {str(k): str(v) for k, v in tvm.target.TargetKind.options_from_name(kind).items()}
    while words:
        option, given, value = words.pop(0).partition("=")
        name = option.lstrip("-")
        if name == option or name not in types:
            what, fix = (
                f"a target of kind {kind!r} has no option {option}",
                ", ".join(sorted(types)),
            )
            raise TargetError(what, where=repr(text), fix=f"it has {fix}")
        if not given and types[name] != "bool" and words and words[0][:1] != "-":
            value = words.pop(0)
        spec[name] = _value(types[name], value)
    return spec


def _value(kind: str, value: str) -> Any:
    """Convert the value of an option to its type; TVM rejects values of other types."""
    if kind == "bool":
        known = {"": True, "1": True, "true": True, "0": False, "false": False}
        return known.get(value.lower(), value)
    if kind == "Array<str>":
        return [part.strip() for part in value.split(",") if part.strip()]
    if kind == "target.Target":
        return parse(value)
    return int(value) if kind == "int" and value.lstrip("-").isdecimal() else value or None


def spelled(target: tvm.target.Target) -> str:
    """Return a target as a short string, such as ``"llvm -mcpu=cortex-a72 -mattr=+neon"``."""
    words = [str(target.kind.name)]
    for name in ("mtriple", "mcpu", "mattr"):
        if value := target.attrs.get(name):
            words.append(f"-{name}={value if isinstance(value, str) else ','.join(value)}")
    return " ".join(words)
