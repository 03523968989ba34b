"""Compilation targets as a user writes them.

A target is a dictionary in today's TVM. Until 2025 it was one string with a kind and options, such
as ``"llvm -mcpu=skylake-avx512"``; `parse` reads such strings. TVM 0.18 defines the options in
``src/target/target_kind.cc``, and tvmc's lists of targets in ``python/tvm/driver/tvmc/target.py``.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.target import codegen

from ..errors import TargetError
from .host import host_target, physical_cores, runtime_threads, triple_of
from .wording import telling

__all__ = ["as_target", "expect_processor", "parse", "spelled", "split_target"]
__all__ += ["physical_cores", "runtime_threads"]  # of `tvmlab.support.host`

#: Names that can stand before the comma of a composite target.
PARTITIONERS = ("npu",)


def as_target(target: tvm.target.Target | Mapping[str, Any] | str | None) -> tvm.target.Target:
    """Return the TVM target for what a user wrote.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        None is the host. A string is a kind or a tag (``"llvm"``, ``"cuda"``,
        ``"nvidia/nvidia-a100"``), or a kind and options as for Relay (``"llvm -mcpu=x86-64-v3
        -num-cores=4"``); a mapping has a ``"kind"`` and its attributes.

    Returns
    -------
    tvm.target.Target

    Raises
    ------
    TargetError
        The kind, the attributes, the triple, the processor's name or an instruction set is unknown.
    """
    if target is None:
        return host_target()
    spec = dict(target) if isinstance(target, Mapping) else target
    if isinstance(spec, str) and len(spec.split()) > 1 and not spec.lstrip().startswith("{"):
        spec = parse(spec)
    try:
        made = spec if isinstance(spec, tvm.target.Target) else tvm.target.Target(spec)
    except Exception as error:  # ValueError, TypeError or InternalError
        raise TargetError(
            f"TVM does not know this target: {telling(error)}",
            where=repr(target),
            fix='give a kind such as "llvm" or a dictionary such as '
            '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}; leave it out for the host',
        ) from error
    if made.kind.name == "llvm":
        _check_llvm(made)
    return made


def _check_llvm(target: tvm.target.Target) -> None:
    """Refuse values of an LLVM target that TVM accepts, and LLVM or the thread pool does not."""
    mcpu, triple = str(target.attrs.get("mcpu") or "generic"), triple_of(target)
    cores = int(target.attrs.get("num-cores", 1))
    # First of all: TVM reads through a null pointer for the instruction sets of such a triple.
    if not codegen.llvm_is_valid_cpu("generic", triple):
        what = f"LLVM cannot compile for the triple {triple!r}"
        fix = "leave mtriple out, or use one such as x86_64-linux-gnu or aarch64-linux-gnu"
    elif not codegen.llvm_is_valid_cpu(mcpu, triple):
        what = f"LLVM does not know a processor named {mcpu!r} for {triple}"
        fix = (
            "leave mcpu out, or use a name of LLVM's such as x86-64-v3, skylake-avx512, "
            "or cortex-a72 with the mtriple aarch64-linux-gnu"
        )
    elif cores < 1:
        what = f"no machine has {cores} cores"
        fix = "give the number of threads to use as num-cores, from 1 on, or leave it out"
    elif unknown := [one for one in target.attrs.get("mattr", ()) if not _is_set(one, triple)]:
        what = f"LLVM knows no instruction set {str(unknown[0])!r} for {triple}"
        fix = 'write mattr as "+avx2,+fma" or "-avx512f", by LLVM\'s names for the processor'
    else:
        if target.host is not None:
            as_target(target.host)
        return
    raise TargetError(what, where=str(target), fix=fix)


def _is_set(feature: str, triple: str) -> bool:
    """Return whether LLVM knows an instruction set with its sign, such as ``"+avx2"``."""
    sign, name = feature[:1], feature[1:]
    with_it = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mattr": [f"+{name}"]})
    return sign in ("+", "-") and codegen.llvm_cpu_has_features(name, with_it)


# A kind, or a kind with options. A comma before + or - belongs to a list of instruction sets.
_COMPOSITE = re.compile(
    r"\s*([A-Za-z][\w-]*(?:(?:\s+-\S+)+?(?=\s*,(?:\s|$)(?!\s*[+-])))?)\s*,(.*)", re.DOTALL
)


def split_target(
    target: tvm.target.Target | Mapping[str, Any] | str | None,
) -> tuple[str | None, tvm.target.Target | Mapping[str, Any] | str | None]:
    """Split a composite target such as ``"npu, llvm"``.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        What a user wrote.

    Returns
    -------
    tuple of (str or None, target)
        The name of the partitioner, or None, and the target for the rest of the module; the target
        is None, which is the host, if the partitioner stands alone.

    Raises
    ------
    TargetError
        The partitioner is unknown or has options.
    """
    if not isinstance(target, str):
        return None, target
    if target.strip() in PARTITIONERS:
        return target.strip(), None
    if (found := _COMPOSITE.fullmatch(target)) is None:
        return None, target
    first, rest = found[1], found[2].strip()
    if first not in PARTITIONERS:
        whole, other = (first, rest) if rest in PARTITIONERS else (rest, first)
        wanted = f"{PARTITIONERS[0]}, {whole}"
        raise TargetError(
            f"{first!r} is not known before a comma; known: {', '.join(PARTITIONERS)}",
            where=repr(target),
            fix=f"what takes parts of a module comes first: {wanted!r}; to compile all of it, "
            f"leave out {other!r} and the comma",
        )
    return first, rest


def parse(text: str) -> dict[str, Any]:
    """Read a target string of TVM before 2025, such as ``"llvm -mcpu=x86-64-v3 -num-cores=4"``.

    ``--`` is as good as ``-``, a space as good as ``=``, and an option without a value is true. The
    option ``-libs`` of ``llvm`` is left out with a warning, because a partitioner selects libraries
    today. Raises `TargetError` if the kind, an option or a value is wrong.
    """
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        what = f"the target cannot be read: {error}"
        raise _unreadable(what, text, "close the quotation mark") from error
    if kind not in tvm.target.Target.list_kinds():
        fix = "begin with a kind: 'llvm -mcpu=x86-64-v3'; for an accelerator: 'npu, llvm'"
        raise _unreadable(f"TVM does not know this target: no kind is named {kind!r}", text, fix)
    types = {str(k): str(v) for k, v in tvm.target.TargetKind.options_from_name(kind).items()}
    spec: dict[str, Any] = {"kind": kind}
    while words:
        option = words.pop(0)
        name, given, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            fix = "write options as -name=value, and lists without spaces: -mattr=+avx2,+fma"
            raise _unreadable(f"{option!r} is no option of a target", text, fix)
        if not given and types.get(name) != "bool" and words and words[0][:1] != "-":
            value = words.pop(0)
        if kind == "llvm" and name == "libs":
            warnings.warn(
                f"the target's option -libs={value} changes nothing today: a partitioner, and not "
                "the target, selects libraries",
                stacklevel=2,
            )
        elif name not in types:
            fix = f"it has {', '.join(sorted(types))}"
            raise _unreadable(f"a target of kind {kind!r} has no option -{name}", text, fix)
        else:
            spec[name] = _value(name, types[name], value, text)
    return spec


def _unreadable(what: str, text: str, fix: str) -> TargetError:
    return TargetError(what, where=repr(text), fix=fix)


def _value(name: str, kind: str, value: str, text: str) -> Any:
    """Return the value of an option in the type that TVM declares for it."""
    if kind == "Array<str>":
        return [part.strip() for part in value.split(",") if part.strip()]
    if kind == "bool" and value.lower() in ("", "0", "1", "true", "false"):
        return value.lower() in ("", "1", "true")
    if kind == "int" and re.fullmatch("-?[0-9]+", value):
        return int(value)
    if kind in ("int", "bool") or not value:
        wants = {"int": "a whole number", "bool": "true or false"}.get(kind, "a value")
        what = f"the target's option -{name} takes {wants}, not {value!r}"
        raise _unreadable(what, text, f"write it as -{name}=VALUE")
    return parse(value) if kind == "target.Target" else value


def spelled(target: tvm.target.Target) -> str:
    """Return a target as a short string, such as ``"llvm -mcpu=cortex-a72 -mattr=+neon"``."""
    words = [str(target.kind.name)]
    for name in ("mtriple", "mcpu", "mattr"):
        if value := target.attrs.get(name):
            words.append(f"-{name}={value if isinstance(value, str) else ','.join(value)}")
    return " ".join(words)


def expect_processor(target: tvm.target.Target) -> None:
    """Refuse a target that is not a processor, because its kernels cannot be measured."""
    if target.kind.name != "llvm":
        raise TargetError(
            f"Kernels are measured on processors, not on {target.kind.name}.",
            where=spelled(target),
            fix='tune for a target of kind "llvm"',
        )
