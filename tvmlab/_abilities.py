"""What a machine can run: told by whoever measures, asked by whoever wants to measure there.

It imports little, so that an RPC server can have it.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import tvm

from ._telling import several
from .errors import TargetError
from .target import cpu_features, lacking, physical_cores, system_triple, usable_processors
from .target_text import spelled

__all__ = ["FUNCTION", "Abilities", "abilities", "expect_processor", "processor_name"]

FUNCTION = "tvmlab.abilities"
"""The function by which an RPC server tells them, in JSON."""


@dataclass(frozen=True)
class Abilities:
    """What a machine can run.

    Attributes
    ----------
    cpu : str
        The processor, by its maker's name.
    triple : str
        What LLVM compiles for on it, the architecture first.
    features : tuple of str
        Its instruction sets, by LLVM's names.
    cores : int
        Physical cores that may be used.
    processors : int
        Logical processors that may be used.
    """

    cpu: str
    triple: str
    features: tuple[str, ...]
    cores: int
    processors: int

    def text(self) -> str:
        """Give it in JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Abilities:
        """Read what `text` gave.

        Raises
        ------
        ValueError
            It is something else.
        """
        try:
            told = json.loads(text)
            return cls(
                cpu=str(told["cpu"]),
                triple=str(told["triple"]),
                features=tuple(map(str, told["features"])),
                cores=int(told["cores"]),
                processors=int(told["processors"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the abilities of a machine are told without {error}") from error

    def refusal(self, target: tvm.target.Target) -> str:
        """Say why the machine cannot run what is compiled for a target.

        Parameters
        ----------
        target : tvm.target.Target
            Of kind ``llvm``.

        Returns
        -------
        str
            A clause about the machine; empty where it can.
        """
        if missing := lacking(target, self.triple, self.features):
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
    """Look at this machine."""
    return Abilities(
        cpu=processor_name(),
        triple=system_triple(),
        features=tuple(sorted(cpu_features())),
        cores=physical_cores(),
        processors=usable_processors(),
    )


@cache
def processor_name() -> str:
    """Name this machine's processor as its maker does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def expect_processor(target: tvm.target.Target) -> None:
    """See to it that kernels for a target can be measured at all.

    Raises
    ------
    TargetError
        The target is no processor.
    """
    if target.kind.name != "llvm":
        raise TargetError(
            f"Kernels are measured on processors, not on {target.kind.name}.",
            where=spelled(target),
            fix='tune for a target of kind "llvm"',
        )
