"""Compilation targets, and what this machine and others can run.

TVM's thread pool takes the number of its threads from ``TVM_NUM_THREADS`` or ``OMP_NUM_THREADS``,
and else uses half of the processors, on the assumption that they are hyperthreads (TVM's
``src/runtime/threading_backend.cc``). On a machine with two cores and no hyperthreads that is one
thread. The pool reads the variable once, when it starts, so that `host_target` has to set the
variable before the first kernel runs.

A target is a dictionary in today's TVM. Until 2025 it was one string with a kind and options, such
as ``"llvm -mcpu=skylake-avx512"``; `parse` reads such strings. TVM 0.18 defines the options in
``src/target/target_kind.cc``, and tvmc's lists of targets in ``python/tvm/driver/tvmc/target.py``.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import platform
import re
import shlex
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm

from ..errors import TargetError
from .importing import PROCESSORS as _PROCESSORS
from .wording import several, telling

__all__ = [
    "ABILITIES",
    "Abilities",
    "abilities",
    "as_target",
    "cpu_features",
    "expect_processor",
    "host_target",
    "main_memory",
    "missing_features",
    "missing_isa",
    "other_processor",
    "parse",
    "physical_cores",
    "processor_name",
    "runtime_threads",
    "spelled",
    "split_target",
    "system_processor",
    "system_triple",
    "usable_processors",
]

#: Names that can stand before the comma of a composite target.
PARTITIONERS = ("npu",)

#: The name of the function by which an RPC server returns its `Abilities` as JSON.
ABILITIES = "tvmlab.abilities"


def usable_processors() -> int:
    """Return the number of logical processors that this process may use."""
    return len(_PROCESSORS)


def physical_cores() -> int:
    """Return the number of physical cores that this process may use.

    Hyperthreads of one core count once. The CPU affinity mask and the CPU quota of a container
    (cgroup v2, ``cpu.max``) limit the number.

    Returns
    -------
    int
        At least 1.
    """
    cores = {_core_of(cpu) for cpu in _PROCESSORS}
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        limit = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no container; the quota is "max"
        limit = len(cores)
    return max(1, min(len(cores), limit))


def _core_of(cpu: int) -> tuple[str, str]:
    """Return the package and the core of a logical processor."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        package = (topology / "physical_package_id").read_text().strip()
        core = (topology / "core_id").read_text().strip()
    except OSError:
        return ("cpu", str(cpu))
    return (package, core)


def main_memory() -> int | None:
    """Return the bytes of main memory, or the limit of a container (cgroup v2) if that is less.

    Returns
    -------
    int or None
        None if the system does not tell.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def host_target() -> tvm.target.Target:
    """Return the target of this machine, and make TVM's thread pool use its cores.

    Returns
    -------
    tvm.target.Target
        Kind ``llvm``, with LLVM's name of this processor as ``mcpu`` and the number of physical
        cores as ``num-cores``. ``TVM_NUM_THREADS``, or else ``OMP_NUM_THREADS``, replaces the
        number if it is set.

    Raises
    ------
    TargetError
        The variable is not a positive number.

    Notes
    -----
    If ``TVM_NUM_THREADS`` is not set, this function sets it in the environment of the process, so
    that child processes inherit the number.

    Call it before the first kernel runs: the size of the pool is fixed once the pool has started,
    and a warning tells if it is smaller than the machine.
    """
    asked = _asked_threads()
    # The pool never has more threads than processors.
    cores = physical_cores() if asked is None else min(asked, len(_PROCESSORS))
    os.environ.setdefault("TVM_NUM_THREADS", str(cores))
    started = runtime_threads()
    if started < cores:
        warnings.warn(
            f"TVM's thread pool had already started with {started} of {cores} threads; "
            "call tvmlab.host_target() before the first kernel runs",
            RuntimeWarning,
            stacklevel=2,
        )
    return tvm.target.Target({"kind": "llvm", "mcpu": system_processor(), "num-cores": cores})


def _asked_threads() -> int | None:
    """Return the number of threads that the user has set, or None."""
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name)
        if text is None:
            continue
        # OpenMP takes a list, one number for each level of nesting; the pool has one level.
        number = text.partition(",")[0] if name == "OMP_NUM_THREADS" else text
        if number.isdecimal() and int(number) > 0:
            return int(number)
        raise TargetError(
            f"{name} is {text!r}, not a positive number",
            where="the environment",
            fix="unset it, or set it to the number of threads for TVM",
        )
    return None


def runtime_threads() -> int:
    """Return the number of threads of TVM's pool; the call starts the pool."""
    return int(tvm.get_global_func("runtime.NumThreads")())


def system_processor() -> str:
    """Return LLVM's name of this processor."""
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def system_triple() -> str:
    """Return LLVM's triple of this machine, with the architecture first."""
    return str(tvm.get_global_func("target.llvm_get_system_triple")())


@cache
def processor_name() -> str:
    """Return the maker's name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


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
    if isinstance(target, tvm.target.Target):
        made = target
    else:
        spec = dict(target) if isinstance(target, Mapping) else target
        if isinstance(spec, str) and len(spec.split()) > 1 and not spec.lstrip().startswith("{"):
            spec = parse(spec)
        try:
            made = tvm.target.Target(spec)
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
    mcpu, triple = str(target.attrs.get("mcpu", "")), _triple(target)
    known = tvm.get_global_func("target.llvm_is_valid_cpu")
    if not known("generic", triple):
        # TVM reads through a null pointer for the instruction sets of such a triple.
        raise TargetError(
            f"LLVM cannot compile for the triple {triple!r}",
            where=str(target),
            fix="leave mtriple out, or use one such as x86_64-linux-gnu or aarch64-linux-gnu",
        )
    if mcpu and not known(mcpu, triple):
        raise TargetError(
            f"LLVM does not know a processor named {mcpu!r} for {triple}",
            where=str(target),
            fix="leave mcpu out, or use a name of LLVM's such as x86-64-v3, skylake-avx512, "
            "or cortex-a72 with the mtriple aarch64-linux-gnu",
        )
    cores = target.attrs.get("num-cores")
    if cores is not None and int(cores) < 1:
        raise TargetError(
            f"no machine has {int(cores)} cores",
            where=str(target),
            fix="give the number of threads to use as num-cores, from 1 on, or leave it out",
        )
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    for feature in map(str, target.attrs.get("mattr", ())):
        sign, name = feature[:1], feature[1:]
        with_it = {"kind": "llvm", "mtriple": triple, "mattr": [f"+{name}"]}
        if sign not in ("+", "-") or not has(name, tvm.target.Target(with_it)):
            raise TargetError(
                f"LLVM knows no instruction set {feature!r} for {triple}",
                where=str(target),
                fix='write mattr as "+avx2,+fma" or "-avx512f", by the names of LLVM for the '
                "processor",
            )
    if target.host is not None:
        as_target(target.host)


def _triple(target: tvm.target.Target) -> str:
    return str(target.attrs.get("mtriple", system_triple()))


# A list of targets. A comma before + or - belongs to a list of instruction sets.
_COMPOSITE = re.compile(
    r"\s*([A-Za-z][\w-]*)(?:\s*,|((?:\s+-\S+)+?)\s*,(?=\s|$)(?!\s*[+-]))(.*)", re.DOTALL
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
        The partitioner is unknown or has options, or there is no target for the rest.
    """
    if not isinstance(target, str):
        return None, target
    if target.strip() in PARTITIONERS:
        return target.strip(), None
    if (found := _COMPOSITE.fullmatch(target)) is None:
        return None, target
    first, options, rest = found[1], (found[2] or "").strip(), found[3].strip()
    if first not in PARTITIONERS:
        swapped = rest in PARTITIONERS
        wanted = f"{rest}, {first}" if swapped else f"{PARTITIONERS[0]}, {rest}"
        raise TargetError(
            f"{first!r} is not known before a comma; known: {', '.join(PARTITIONERS)}",
            where=repr(target),
            fix=f"what takes parts of a module comes first: {wanted!r}; to compile all of it, "
            f"leave out {rest if swapped else first!r} and the comma",
        )
    if options:
        raise TargetError(
            f"{first!r} takes no options in a target, such as {options!r}",
            where=repr(target),
            fix=f"sizes of another machine go to tvmlab.{first}.partition, before compiling",
        )
    if not rest:
        raise TargetError(
            f"{first!r} takes parts of a module; there is no target for the rest",
            where=repr(target),
            fix=f'add the target for the rest: "{first}, llvm"',
        )
    return first, rest


# Names of options before TVM 0.7.
_RENAMED = {"target": "mtriple", "mfloat_abi": "mfloat-abi"}
# Options, with or without a value, that today's TVM does not need, and why.
_IDLE = {
    "link-params": "weights are always in what is compiled",
    "runtime=c++": "there is no other runtime",
    "runtime=cpp": "there is no other runtime",
    "executor=graph": "Relax's virtual machine is what runs a module",
    "executor=vm": "it is what runs a module",
    "model=unknown": "it says nothing",
}


def parse(text: str) -> dict[str, Any]:
    """Read a target string as TVM took it until 2025.

    Parameters
    ----------
    text : str
        A kind and options: ``"llvm -mcpu=x86-64-v3 -num-cores=4"``. ``--`` is as good as ``-``, a
        space as good as ``=``, and an option without a value is true.

    Returns
    -------
    dict
        The argument of today's `tvm.target.Target`. Options that have no effect today are left out,
        with a warning that says why.

    Raises
    ------
    TargetError
        A word is not an option, a value does not fit its option, the kind does not have such an
        option (any more), or the string has no kind or several targets.
    """
    if _COMPOSITE.fullmatch(text):
        raise _unreadable("several targets were given where one is taken", text, "name one kind")
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise _unreadable(
            f"the target cannot be read: {error}", text, "close the quotation mark"
        ) from error
    if not kind or kind.startswith("-"):
        fix = "begin with a kind: 'llvm -mcpu=x86-64-v3'"
        raise _unreadable("the target names no kind of device", text, fix)
    kinds = tvm.target.Target.list_kinds()
    known = tvm.target.TargetKind.options_from_name(kind) if kind in kinds else {}
    spec: dict[str, Any] = {"kind": kind}
    while words:
        option = words.pop(0)
        name, given, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not name:
            fix = "write options as -name=value, and lists without spaces: -mattr=+avx2,+fma"
            raise _unreadable(f"{option!r} is no option of a target", text, fix)
        name = _RENAMED.get(name, name)
        if not given and str(known.get(name)) != "bool" and words and words[0][:1] != "-":
            value = words.pop(0)
        why = _IDLE.get(name) or _IDLE.get(f"{name}={value}")
        if kind == "llvm" and name == "libs":
            why = "libraries compute what a partitioner gives them, no more what a target names"
        if why:
            said = f"{name}={value}" if value else name
            warnings.warn(f"the target's option -{said} changes nothing today: {why}", stacklevel=2)
        elif known and name not in known:
            names = sorted(map(str, known))
            near = difflib.get_close_matches(name, names, 1)
            fix = f"did you mean -{near[0]}?" if near else f"it has {', '.join(names)}"
            raise _unreadable(f"a target of kind {kind!r} has no option -{name}", text, fix)
        elif name in spec:
            fix = "leave one of them out"
            raise _unreadable(f"the target's option -{name} is there twice", text, fix)
        else:
            spec[name] = _value(name, str(known.get(name, "")), value, text)
    return spec


def _unreadable(what: str, text: str, fix: str) -> TargetError:
    return TargetError(what, where=repr(text), fix=fix)


def _value(name: str, kind: str, value: str, text: str) -> Any:
    """Return the value of an option in the type that TVM declares for it."""
    if kind == "Array<str>":
        return [part.strip() for part in value.split(",") if part.strip()]
    whole = value.removeprefix("-").isdecimal() and value.isascii()
    if kind == "bool" and value.lower() in ("", "0", "1", "true", "false"):
        return value.lower() in ("", "1", "true")
    if kind in ("int", "") and whole:
        return int(value)
    if kind == "":  # TVM will refuse the unknown kind of device
        return value or True
    if kind in ("int", "bool") or not value:
        wants = {"int": "a whole number", "bool": "true or false"}.get(kind, "a value")
        what = f"the target's option -{name} takes {wants}, not {value!r}"
        raise _unreadable(what, text, f"write it as -{name}=VALUE")
    return parse(value) if kind == "target.Target" else value


def spelled(target: tvm.target.Target) -> str:
    """Return a target as a short string, such as ``"llvm -mcpu=cortex-a72 -mattr=+neon"``.

    Parameters
    ----------
    target : tvm.target.Target
        The string has its kind and the options that select a processor.
    """
    words = [str(target.kind.name)]
    for name in ("mtriple", "mcpu", "mattr"):
        if value := target.attrs.get(name):
            words.append(f"-{name}={value if isinstance(value, str) else ','.join(value)}")
    return " ".join(words)


# Prefixes of those names of LLVM's features that stand for instructions; the others tune.
_INSTRUCTIONS = (
    *("adx", "aes", "amx", "avx", "bf16", "bmi", "crc", "dotprod", "f16c", "fma", "fp-armv8"),
    *("fullfp16", "gfni", "i8mm", "lse", "lzcnt", "movbe", "neon", "pclmul", "popcnt", "sha"),
    *("sme", "sse", "ssse", "sve", "vaes", "vpclmul", "xop"),
)


def missing_features(target: tvm.target.Target) -> str:
    """Name what a CPU target uses and this machine lacks.

    Parameters
    ----------
    target : tvm.target.Target
        Any target.

    Returns
    -------
    str
        Another architecture, or instruction sets by LLVM's names; empty if the code can run here.
        Other code would end the process with an illegal instruction.
    """
    if target.kind.name != "llvm":
        return ""
    return missing_isa(target, system_triple(), cpu_features())


def missing_isa(target: tvm.target.Target, triple: str, features: Collection[str]) -> str:
    """Name what a CPU target uses and a machine lacks.

    Parameters
    ----------
    target : tvm.target.Target
        Of kind ``llvm``.
    triple : str
        The triple of the machine, with the architecture first.
    features : collection of str
        The machine's instruction sets, by LLVM's names.

    Returns
    -------
    str
        As `missing_features`.
    """
    if other := other_processor(target, triple):
        return other
    # Without either, LLVM compiles for the least processor of the architecture.
    named = "mcpu" in target.attrs or "mattr" in target.attrs
    absent = _features(target) - set(features) if named else set()
    return ", ".join(sorted(name for name in absent if name.startswith(_INSTRUCTIONS)))


def other_processor(target: tvm.target.Target, triple: str) -> str:
    """Name the processor of a CPU target if its architecture is not that of a triple.

    Parameters
    ----------
    target, triple
        As of `missing_isa`.
    """
    wanted = _triple(target)
    same = wanted.partition("-")[0] == triple.partition("-")[0]
    return "" if same else f"a processor of {wanted}"


def cpu_features() -> set[str]:
    """Return this machine's instruction sets, by LLVM's names."""
    return _features(tvm.target.Target({"kind": "llvm", "mcpu": system_processor()}))


def _features(target: tvm.target.Target) -> set[str]:
    return {str(name) for name in tvm.get_global_func("target.llvm_get_cpu_features")(target)}


@dataclass(frozen=True)
class Abilities:
    """What a machine can run.

    Attributes
    ----------
    cpu : str
        The maker's name of the processor.
    triple : str
        LLVM's triple, with the architecture first.
    features : tuple of str
        The instruction sets, by LLVM's names.
    cores : int
        The number of physical cores that may be used.
    processors : int
        The number of logical processors that may be used.
    """

    cpu: str
    triple: str
    features: tuple[str, ...]
    cores: int
    processors: int

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Abilities:
        """Read the JSON of `text`."""
        told = json.loads(text)
        return cls(**{**told, "features": tuple(told["features"])})

    def why_unsupported(self, target: tvm.target.Target) -> str:
        """Return the reason why the machine cannot run code for a target.

        Parameters
        ----------
        target : tvm.target.Target
            Of kind ``llvm``.

        Returns
        -------
        str
            A clause about the machine; empty if it can run the code.
        """
        if missing := missing_isa(target, self.triple, self.features):
            return f"it lacks {missing}"
        threads = int(target.attrs.get("num-cores", 1))
        if threads > self.processors:
            return (
                f"the target's num-cores is {threads}, and it has "
                f"{several(self.processors, 'processor')} to use"
            )
        return ""


@cache
def abilities() -> Abilities:
    """Return what this machine can run."""
    return Abilities(
        cpu=processor_name(),
        triple=system_triple(),
        features=tuple(sorted(cpu_features())),
        cores=physical_cores(),
        processors=usable_processors(),
    )


def expect_processor(target: tvm.target.Target) -> None:
    """Check that kernels for a target can be measured.

    Raises
    ------
    TargetError
        The target is not a processor.
    """
    if target.kind.name != "llvm":
        raise TargetError(
            f"Kernels are measured on processors, not on {target.kind.name}.",
            where=spelled(target),
            fix='tune for a target of kind "llvm"',
        )
