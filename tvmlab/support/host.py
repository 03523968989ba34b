"""The properties of this machine, and whether it can run code for a target.

TVM's thread pool reads the number of its threads from ``TVM_NUM_THREADS`` or ``OMP_NUM_THREADS``
when it starts; otherwise it uses half of the logical processors, in case they are hyperthreads.
"""

from __future__ import annotations

import math
import os
import platform
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tvm
from tvm.target import codegen

from ..errors import TargetError
from .importing import PROCESSORS
from .wording import several

#: The name of the function with which an RPC server returns its `Abilities` as JSON.
ABILITIES = "tvmlab.abilities"


def physical_cores() -> int:
    """Return the number of physical cores that this process, or its container, can use."""
    cores = len({core_of(cpu) for cpu in PROCESSORS})
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no container; the quota is "max"
        return cores


def core_of(cpu: int) -> tuple[str, ...]:
    """Return the package and the core that a logical processor belongs to."""
    topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
    try:
        names = "physical_package_id", "core_id"
        return tuple(Path(f"{topology}/{name}").read_text() for name in names)
    except OSError:
        return ("cpu", str(cpu))


def main_memory() -> int:
    """Return the bytes of main memory, or a container's limit (cgroup v2) if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container; the limit is "max"
        return total


def host_target() -> tvm.target.Target:
    """Return the target of this machine, and make TVM's thread pool use its cores.

    Sets ``TVM_NUM_THREADS`` if it is not set. Call this function before the first kernel runs,
    because the size of the pool is fixed once the pool has started. Warns if the pool is too small.

    Returns
    -------
    tvm.target.Target
        Kind ``llvm``, with LLVM's name of this processor as ``mcpu``; ``num-cores`` is the number
        of physical cores, or else ``TVM_NUM_THREADS`` or ``OMP_NUM_THREADS``.

    Raises
    ------
    TargetError
        The variable is not a positive number.
    """
    # The pool never has more threads than processors.
    cores = min(_asked_threads() or physical_cores(), len(PROCESSORS))
    os.environ.setdefault("TVM_NUM_THREADS", str(cores))
    if (started := runtime_threads()) < cores:
        what = f"TVM's thread pool had already started with {started} of {cores} threads; call "
        what += "tvmlab.host_target() before the first kernel runs"
        warnings.warn(what, RuntimeWarning, stacklevel=2)
    cpu = codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": cores})


def _asked_threads() -> int | None:
    """Return the number of threads that the user has set, or None."""
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name)
        if text is None:
            continue
        # OpenMP takes a list with one number per level of nesting; TVM reads the first.
        number = text.partition(",")[0]
        if number.isdecimal() and int(number) > 0:
            return int(number)
        what, where = f"{name} is {text!r}, not a positive number", "the environment"
        raise TargetError(what, where=where, fix="unset it, or set it to the number of threads")
    return None


def runtime_threads() -> int:
    """Return the number of threads of TVM's pool; the call starts the pool."""
    return int(tvm.get_global_func("runtime.NumThreads")())


@cache
def processor_name() -> str:
    """Return the vendor's name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def triple_of(target: tvm.target.Target) -> str:
    """Return the triple that an LLVM target compiles for."""
    return str(target.attrs.get("mtriple", codegen.llvm_get_system_triple()))


# Prefixes of LLVM's feature names that are instruction sets; other features only tune.
_INSTRUCTIONS = (
    *("adx", "aes", "amx", "avx", "bf16", "bmi", "crc", "dotprod", "f16c", "fma", "fp-armv8"),
    *("fullfp16", "gfni", "i8mm", "lse", "lzcnt", "movbe", "neon", "pclmul", "popcnt", "sha"),
    *("sme", "sse", "ssse", "sve", "vaes", "vpclmul", "xop"),
)


def other_processor(target: tvm.target.Target, triple: str = "") -> str:
    """Name the processor of an LLVM target if its architecture differs from the triple's."""
    wanted, here = triple_of(target), triple or codegen.llvm_get_system_triple()
    return "" if wanted.split("-")[0] == here.split("-")[0] else f"a processor of {wanted}"


def missing_features(target: tvm.target.Target) -> str:
    """Return the features that a target uses and this machine lacks; empty if its code can run."""
    return abilities().missing(target) if target.kind.name == "llvm" else ""


class Abilities(NamedTuple):
    """The abilities of a machine: its processor, LLVM's triple and features, logical processors.

    A server returns them as JSON, ``json.dumps(abilities())``.
    """

    cpu: str
    triple: str
    features: Sequence[str]
    processors: int

    def missing(self, target: tvm.target.Target) -> str:
        """Return the features that a target uses and the machine lacks; empty if there are none."""
        if other := other_processor(target, self.triple):
            return other
        # Without either, LLVM compiles for the baseline processor of the architecture.
        named = "mcpu" in target.attrs or "mattr" in target.attrs
        absent = codegen.llvm_get_cpu_features(target).difference(self.features) if named else ()
        return ", ".join(sorted(name for name in absent if name.startswith(_INSTRUCTIONS)))

    def why_unsupported(self, target: tvm.target.Target) -> str:
        """Return why the machine cannot run code for a target, as a clause, or ""."""
        if target.kind.name != "llvm":
            return f"{target.kind.name} is not a kind of CPU"
        if missing := self.missing(target):
            return f"it lacks {missing}"
        threads = int(target.attrs.get("num-cores", 1))
        if threads > self.processors:
            own = several(self.processors, "processor")
            return f"the target's num-cores is {threads}, but the machine has {own}"
        return ""


@cache
def abilities() -> Abilities:
    """Return the abilities of this machine."""
    cpu = codegen.llvm_get_system_cpu()
    own = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    features = sorted(codegen.llvm_get_cpu_features(own))
    triple = codegen.llvm_get_system_triple()
    return Abilities(processor_name(), triple, features, len(PROCESSORS))
