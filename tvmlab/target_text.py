"""Target strings of Relay's time, such as ``"llvm -mcpu=skylake-avx512"``, as today's targets.

TVM took a kind and options in one string until 2025; today it takes a dictionary, whose keys are
those options' names. What an option meant is in ``src/target/target_kind.cc`` of TVM 0.18, and
tvmc's list of targets in one string in ``python/tvm/driver/tvmc/target.py``.
"""

from __future__ import annotations

import difflib
import re
import shlex
import warnings
from typing import Any

import tvm

from .errors import TargetError

__all__ = ["parse", "spelled", "split"]

# A comma before + or - is one of a list of instruction sets.
_COMPOSITE = re.compile(
    r"\s*([A-Za-z][\w-]*)(?:\s*,|((?:\s+-\S+)+?)\s*,(?=\s|$)(?!\s*[+-]))(.*)", re.DOTALL
)
# As they were called before TVM 0.7.
_RENAMED = {"target": "mtriple", "mfloat_abi": "mfloat-abi"}
# Options, or an option and a value, that change nothing: why.
_IDLE = {
    "link-params": "weights are always in what is compiled",
    "runtime=c++": "there is no other runtime",
    "runtime=cpp": "there is no other runtime",
    "executor=graph": "Relax's virtual machine is what runs a module",
    "executor=vm": "it is what runs a module",
    "model=unknown": "it says nothing",
}
_LIBRARIES = "libraries compute what a partitioner gives them, no more what a target names"
# Options of programs without an operating system, which went with microTVM.
_MICRO = {"executor", "interface-api", "runtime", "system-lib", "unpacked-api"}


def split(text: str) -> tuple[str, str, str] | None:
    """Take a list of two targets, such as ``"npu, llvm -mcpu=x86-64-v3"``, apart.

    Parameters
    ----------
    text : str
        Commas inside of options, as in ``-mattr=+avx2,+fma``, part nothing.

    Returns
    -------
    (str, str, str) or None
        The first target's name, its options as they stand, and all that comes after its comma;
        None where there is one target.
    """
    found = _COMPOSITE.fullmatch(text)
    return None if found is None else (found[1], (found[2] or "").strip(), found[3].strip())


def spelled(target: tvm.target.Target) -> str:
    """Write a target as one types it: its kind, and the options that say which processor it is.

    Parameters
    ----------
    target : tvm.target.Target
        What TVM added by itself, such as the keys, is left out.

    Returns
    -------
    str
        As ``"llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon"``.
    """
    words = [str(target.kind.name)]
    for name in ("mtriple", "mcpu", "mattr"):
        if value := target.attrs.get(name):
            words.append(f"-{name}={value if isinstance(value, str) else ','.join(value)}")
    return " ".join(words)


def parse(text: str) -> dict[str, Any]:
    """Take a target string apart.

    Parameters
    ----------
    text : str
        A kind and options: ``"llvm -mcpu=x86-64-v3 -num-cores=4"``. ``--`` is as good as ``-``, a
        space as good as ``=``, and an option without a value is true.

    Returns
    -------
    dict
        What `tvm.target.Target` takes today. Options that change nothing today are left out, with
        a warning that says why.

    Raises
    ------
    TargetError
        A word is no option or no value of one, the kind has no such option (any more), there is no
        kind, or there are several targets.
    """
    if split(text):
        raise TargetError(
            "several targets were given where one is taken",
            where=repr(text),
            fix="name one kind and its options",
        )
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise TargetError(
            f"the target cannot be read: {error}",
            where=repr(text),
            fix="close the quotation mark, or take it away",
        ) from error
    if not kind or kind.startswith("-"):
        raise TargetError(
            "the target names no kind of device",
            where=repr(text),
            fix="begin with a kind: 'llvm -mcpu=x86-64-v3'",
        )
    known = tvm.target.TargetKind.options_from_name(kind) if _is_kind(kind) else {}
    spec: dict[str, Any] = {"kind": kind}
    while words:
        option = words.pop(0)
        name, given, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            raise TargetError(
                f"{option!r} is no option of a target",
                where=repr(text),
                fix="write options as -name=value, and lists without spaces: -mattr=+avx2,+fma",
            )
        name = _RENAMED.get(name, name)
        if not given and str(known.get(name)) != "bool" and words and words[0][:1] != "-":
            value = words.pop(0)
        if why := _idle(kind, name, value):
            said = f"{name}={value}" if value else name
            warnings.warn(f"the target's option -{said} changes nothing today: {why}", stacklevel=2)
        elif known and name not in known:
            raise _unknown(name, kind, known, text)
        elif name in spec:
            raise TargetError(
                f"the target's option -{name} is there twice",
                where=repr(text),
                fix="leave one of them out",
            )
        else:
            spec[name] = _value(name, str(known.get(name, "")), value, text)
    return spec


def _is_kind(name: str) -> bool:
    return name in tvm.target.Target.list_kinds()


def _idle(kind: str, name: str, value: str) -> str:
    """Say why an option changes nothing; empty where it does."""
    if kind == "llvm" and name == "libs":
        return _LIBRARIES
    return _IDLE.get(name) or _IDLE.get(f"{name}={value}", "")


def _unknown(name: str, kind: str, known: Any, text: str) -> TargetError:
    """Refuse an option that the kind has not."""
    if name in _MICRO:
        return TargetError(
            f"the option -{name} is gone with TVM's part for microcontrollers",
            where=repr(text),
            fix="leave it out: Relax's virtual machine runs what is compiled",
        )
    names = [str(one) for one in known]
    near = difflib.get_close_matches(name, names, 1)
    return TargetError(
        f"a target of kind {kind!r} has no option -{name}",
        where=repr(text),
        fix=f"did you mean -{near[0]}?" if near else f"it has {', '.join(sorted(names))}",
    )


def _value(name: str, kind: str, value: str, text: str) -> Any:
    """Read an option's value as what its kind of option takes."""
    if kind == "Array<str>":
        return [part.strip() for part in value.split(",") if part.strip()]
    whole = value.removeprefix("-").isdecimal() and value.isascii()
    if kind == "bool" and value.lower() in ("", "0", "1", "true", "false"):
        return value.lower() in ("", "1", "true")
    if kind in ("int", "") and whole:
        return int(value)
    if kind == "":  # of a kind that TVM will refuse
        return value or True
    if kind in ("int", "bool") or not value:
        wants = {"int": "a whole number", "bool": "true or false"}.get(kind, "a value")
        raise TargetError(
            f"the target's option -{name} takes {wants}, not {value!r}",
            where=repr(text),
            fix=f"write it as -{name}=VALUE",
        )
    return parse(value) if kind == "target.Target" else value
