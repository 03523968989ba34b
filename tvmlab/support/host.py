"""What this machine has, and whether it can run code for a target.

TVM's thread pool takes the number of its threads from ``TVM_NUM_THREADS`` or ``OMP_NUM_THREADS``,
and else uses half of the processors, on the assumption that they are hyperthreads (TVM's
``src/runtime/threading_backend.cc``). On a machine with two cores and no hyperthreads that is one
thread. The pool reads the variable once, when it starts, so that `host_target` has to set the
variable before the first kernel runs.
"""

from __future__ import annotations

import json
import math
import os
import platform
import warnings
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import tvm

from ..errors import TargetError
from .importing import PROCESSORS as _PROCESSORS
from .wording import several

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
    cores = {core_of(cpu) for cpu in _PROCESSORS}
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        limit = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no container; the quota is "max"
        limit = len(cores)
    return max(1, min(len(cores), limit))


def core_of(cpu: int) -> tuple[str, str]:
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


def triple_of(target: tvm.target.Target) -> str:
    """Return the triple that an LLVM target compiles for."""
    return str(target.attrs.get("mtriple", system_triple()))


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
    return _missing(target, system_triple(), _host_features())


def _missing(target: tvm.target.Target, triple: str, features: Collection[str]) -> str:
    """Name what an LLVM target uses and a machine with this triple and these features lacks."""
    if other := other_processor(target, triple):
        return other
    # Without either, LLVM compiles for the least processor of the architecture.
    named = "mcpu" in target.attrs or "mattr" in target.attrs
    absent = _features(target) - set(features) if named else set()
    return ", ".join(sorted(name for name in absent if name.startswith(_INSTRUCTIONS)))


def other_processor(target: tvm.target.Target, triple: str) -> str:
    """Name the processor of an LLVM target if its architecture is not that of a triple."""
    wanted = triple_of(target)
    same = wanted.partition("-")[0] == triple.partition("-")[0]
    return "" if same else f"a processor of {wanted}"


def _host_features() -> set[str]:
    return _features(tvm.target.Target({"kind": "llvm", "mcpu": system_processor()}))


def _features(target: tvm.target.Target) -> set[str]:
    """Return a target's instruction sets, by LLVM's names."""
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
    processors : int
        The number of logical processors that may be used.
    """

    cpu: str
    triple: str
    features: tuple[str, ...]
    processors: int

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Abilities:
        """Read the JSON of `text`."""
        fields = json.loads(text)
        return cls(**{**fields, "features": tuple(fields["features"])})

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
        if missing := _missing(target, self.triple, self.features):
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
        features=tuple(sorted(_host_features())),
        processors=usable_processors(),
    )
