"""The host target: LLVM's name of this processor, its cores, and TVM's threads.

TVM's thread pool takes ``TVM_NUM_THREADS``, then ``OMP_NUM_THREADS``, and else half of the
processors it sees, on the assumption that they are hyperthreads (TVM's
``src/runtime/threading_backend.cc``). On a two-core machine without hyperthreads that is one
thread. The pool reads the variable once, when it first starts, so it has to be set before the
first kernel runs: `host_target` does it.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tvm

from . import target_text
from ._processors import PROCESSORS as _PROCESSORS
from ._telling import telling
from .errors import TargetError

__all__ = [
    "as_target",
    "cpu_features",
    "host_target",
    "lacking",
    "missing_features",
    "other_processor",
    "physical_cores",
    "runtime_threads",
    "split_target",
    "system_triple",
    "usable_processors",
]

PARTITIONERS = ("npu",)
"""What may stand before the comma of a composite target."""


def usable_processors() -> int:
    """Count the logical processors that this process may use."""
    return len(_PROCESSORS)


def physical_cores() -> int:
    """Count the physical cores that this process may use.

    Hyperthreads of one core count once; a CPU affinity mask and a container's CPU quota
    (cgroup v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``) are respected.

    Returns
    -------
    int
        At least 1.
    """
    cores = {_core_of(cpu) for cpu in _PROCESSORS}
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    limit = len(cores) if quota is None else math.ceil(quota)
    return max(1, min(len(cores), limit))


def _core_of(cpu: int) -> tuple[str, str]:
    """Name the physical core under a logical processor: (package, core)."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        package = (topology / "physical_package_id").read_text().strip()
        core = (topology / "core_id").read_text().strip()
    except OSError:
        return ("cpu", str(cpu))
    return (package, core)


def _cgroup_quota(root: Path) -> float | None:
    """Read a container's CPU quota in processors, None where there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max" or -1: no limit
    return int(quota) / int(period)


def host_target() -> tvm.target.Target:
    """Describe this machine to TVM, and make TVM's thread pool use its cores.

    Returns
    -------
    tvm.target.Target
        Kind ``llvm``, with ``mcpu`` as LLVM names this processor and ``num-cores`` the
        physical cores; ``TVM_NUM_THREADS``, or else ``OMP_NUM_THREADS``, wins over the count
        where the user has set it.

    Raises
    ------
    TargetError
        The variable is set to something that is not a positive number.

    Notes
    -----
    Where ``TVM_NUM_THREADS`` is not set, this sets it in the environment of the process:
    processes that it starts inherit the number.

    Call it before the first kernel runs: once the pool has started, its size is fixed for the
    process, and a warning says so when it is smaller than the machine.
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
    return tvm.target.Target({"kind": "llvm", "mcpu": _system_cpu(), "num-cores": cores})


def _system_cpu() -> str:
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def _asked_threads() -> int | None:
    """Read the number of threads that the user has set, None where there is none."""
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
            fix="unset it, or set it to the number of threads TVM shall use",
        )
    return None


def runtime_threads() -> int:
    """Tell how many threads TVM's pool has; asking starts the pool."""
    return int(tvm.get_global_func("runtime.NumThreads")())


def _triple(made: tvm.target.Target) -> str:
    return str(made.attrs.get("mtriple", system_triple()))


def system_triple() -> str:
    """Give LLVM's triple of this machine, the architecture first."""
    return str(tvm.get_global_func("target.llvm_get_system_triple")())


def as_target(target: tvm.target.Target | Mapping[str, Any] | str | None) -> tvm.target.Target:
    """Turn what a user wrote into a target that TVM accepts.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        None is the host. A string is a kind or a tag (``"llvm"``, ``"cuda"``,
        ``"nvidia/nvidia-a100"``), or a kind and options as in Relay's time (``"llvm
        -mcpu=x86-64-v3 -num-cores=4"``, see `tvmlab.target_text`); a mapping has a ``"kind"`` and
        its attributes.

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
            spec = target_text.parse(spec)
        try:
            made = tvm.target.Target(spec)
        except Exception as error:
            # TVM raises ValueError, TypeError or InternalError here, by what is wrong.
            raise TargetError(
                f"TVM does not know this target: {telling(error)}",
                where=repr(target),
                fix='give a kind such as "llvm" or a dictionary such as '
                '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}; leave it out for the host',
            ) from error
    if made.kind.name != "llvm":
        return made
    mcpu, triple = str(made.attrs.get("mcpu", "")), _triple(made)
    known = tvm.get_global_func("target.llvm_is_valid_cpu")
    if not known("generic", triple):
        # Asked for its instruction sets, TVM would read through a null pointer.
        raise TargetError(
            f"LLVM cannot compile for the triple {triple!r}",
            where=str(made),
            fix="leave mtriple out, or use one such as x86_64-linux-gnu or aarch64-linux-gnu",
        )
    if mcpu and not known(mcpu, triple):
        raise TargetError(
            f"LLVM does not know a processor named {mcpu!r} for {triple}",
            where=str(made),
            fix="leave mcpu out, or use a name of LLVM's such as x86-64-v3, skylake-avx512, "
            "or cortex-a72 with the mtriple aarch64-linux-gnu",
        )
    _expect_options(made, triple)
    return made


def _expect_options(made: tvm.target.Target, triple: str) -> None:
    """Refuse option values of an LLVM target that TVM takes, and LLVM or the threads cannot."""
    cores = made.attrs.get("num-cores")
    if cores is not None and int(cores) < 1:
        raise TargetError(
            f"no machine has {int(cores)} cores",
            where=str(made),
            fix="give the number of threads to use as num-cores, from 1 on, or leave it out",
        )
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    for feature in map(str, made.attrs.get("mattr", ())):
        sign, name = feature[:1], feature[1:]
        with_it = {"kind": "llvm", "mtriple": triple, "mattr": [f"+{name}"]}
        if sign not in ("+", "-") or not has(name, tvm.target.Target(with_it)):
            raise TargetError(
                f"LLVM knows no instruction set {feature!r} for {triple}",
                where=str(made),
                fix='write mattr as "+avx2,+fma" or "-avx512f", by the names of LLVM for the '
                "processor",
            )
    if made.host is not None:
        as_target(made.host)


def split_target(
    target: tvm.target.Target | Mapping[str, Any] | str | None,
) -> tuple[str | None, tvm.target.Target | Mapping[str, Any] | str | None]:
    """Take a composite target such as ``"npu, llvm"`` apart.

    Parameters
    ----------
    target : tvm.target.Target, mapping, str or None
        What a user wrote.

    Returns
    -------
    tuple of (str or None, target)
        Who takes parts of a module (None where nobody does), and the target for the rest: None,
        which is the host, where a partitioner stands alone.

    Raises
    ------
    TargetError
        Nobody of that name is known, it has options, or there is no target for the rest.
    """
    if not isinstance(target, str):
        return None, target
    if target.strip() in PARTITIONERS:  # alone, it leaves the rest to the host
        return target.strip(), None
    if (parts := target_text.split(target)) is None:
        return None, target
    first, options, rest = parts
    if first not in PARTITIONERS:
        turned = rest in PARTITIONERS
        wanted = f"{rest}, {first}" if turned else f"{PARTITIONERS[0]}, {rest}"
        other = rest if turned else first
        raise TargetError(
            f"{first!r} is not known before a comma; known: {', '.join(PARTITIONERS)}",
            where=repr(target),
            fix=f"what takes parts of a module comes first: {wanted!r}; to compile all of it, "
            f"leave out {other!r} and the comma",
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
            fix=f'say what compiles what is left: "{first}, llvm"',
        )
    return first, rest


# Prefixes of the feature names of LLVM that are instructions; the others tell it what is fast.
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
        Another architecture, or instruction sets by LLVM's names; empty where the code can run
        here. Running it all the same would end the process with an illegal instruction.
    """
    if target.kind.name != "llvm":
        return ""
    return lacking(target, system_triple(), cpu_features())


def lacking(target: tvm.target.Target, triple: str, features: Collection[str]) -> str:
    """Name what a CPU target uses and a machine lacks.

    Parameters
    ----------
    target : tvm.target.Target
        Of kind ``llvm``.
    triple : str
        The machine's, the architecture first.
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
    """Name what a CPU target is for where that is another kind of processor; else nothing.

    Parameters
    ----------
    target, triple
        As of `lacking`.
    """
    wanted = _triple(target)
    same = wanted.partition("-")[0] == triple.partition("-")[0]
    return "" if same else f"a processor of {wanted}"


def cpu_features() -> set[str]:
    """List this machine's instruction sets, by LLVM's names."""
    return _features(tvm.target.Target({"kind": "llvm", "mcpu": _system_cpu()}))


def _features(target: tvm.target.Target) -> set[str]:
    return {str(name) for name in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
