"""What a schedule has to know about a processor: its vectors, registers, caches and threads."""

from __future__ import annotations

import os
from dataclasses import dataclass

import tvm

from ..errors import TargetError
from .dot_intrinsics import Dot

__all__ = ["DOTS", "Machine"]

_X86 = "llvm.x86."
# By the features of processors that have them, the best first.
_NARROW = {
    "avx512vnni": Dot(f"{_X86}avx512.vpdpbusd.512", 16, 4, "uint8", "int8"),
    "avxvnni": Dot(f"{_X86}avx512.vpdpbusd.256", 8, 4, "uint8", "int8"),
    "dotprod": Dot("llvm.aarch64.neon.sdot.v4i32.v16i8", 4, 4, "int8", "int8", spare=1),
}
_WIDE = {
    "avx512bw": Dot(f"{_X86}avx512.pmaddw.d.512", 16, 2, "int16", "int16", adds=False, spare=1),
    "avx2": Dot(f"{_X86}avx2.pmadd.wd", 8, 2, "int16", "int16", adds=False, spare=1),
    "sse2": Dot(f"{_X86}sse2.pmadd.wd", 4, 2, "int16", "int16", adds=False, spare=1),
}
#: All dot products that are known.
DOTS = (*_NARROW.values(), *_WIDE.values())


@dataclass(frozen=True)
class Machine:
    """A CPU, as the rules see it.

    Attributes
    ----------
    vector_bytes : int
        Width of a vector register.
    registers : int
        Vector registers that a tile may use: those that the instruction set names, less one where a
        product needs one of its own.
    threads : int
        Threads that a parallel loop is spread over.
    l1, l2 : int
        Bytes of one core's data caches that a kernel may count on.
    dot8, dot16 : Dot or None
        The instructions that sum products of 8 and of 16 bits.
    """

    vector_bytes: int
    registers: int
    threads: int
    l1: int = 32 << 10
    l2: int = 512 << 10
    dot8: Dot | None = None
    dot16: Dot | None = None

    @classmethod
    def of(cls, target: tvm.target.Target) -> Machine:
        """Read a target of kind ``llvm``.

        Vectors and registers follow from the instruction sets that LLVM names for the target:
        AVX-512 has 32 registers of 64 bytes, AVX 16 of 32, NEON 32 of 16, SSE 16 of 16. So do the
        dot products.

        Raises
        ------
        tvmlab.errors.TargetError
            It is no target, but the name of a processor, say.
        """
        if not isinstance(target, tvm.target.Target):
            raise TargetError(
                f"{target!r} is no target",
                where="Machine.of",
                fix="give a tvm.target.Target, as of {'kind': 'llvm', 'mcpu': 'x86-64-v3'}",
            )
        features = {str(f) for f in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
        if "avx512f" in features:
            width, registers = 64, 32
        elif "avx" in features:
            width, registers = 32, 16
        else:
            width, registers = 16, 32 if "neon" in features else 16
        if "fma" not in features and "neon" not in features:
            registers -= 1  # a product has to lie somewhere before it is added
        threads = int(target.attrs.get("num-cores", 0)) or os.cpu_count() or 1
        dot8, dot16 = _dots(features)
        return cls(width, registers, threads, dot8=dot8, dot16=dot16)

    def lanes(self, dtype: str) -> int:
        """Count the numbers of a dtype that one vector holds."""
        return max(1, self.vector_bytes * 8 // int(tvm.DataType(dtype).bits))


def _dots(features: set[str]) -> tuple[Dot | None, Dot | None]:
    """Find the dot products of 8 and of 16 bits among a processor's features."""
    narrow, wide = (
        next((dot for feature, dot in known.items() if feature in features), None)
        for known in (_NARROW, _WIDE)
    )
    return narrow, wide
