"""What a schedule has to know about a processor: its vectors, registers, caches and threads."""

from __future__ import annotations

import os
from dataclasses import dataclass

import tvm

__all__ = ["Machine"]


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
    """

    vector_bytes: int
    registers: int
    threads: int
    l1: int = 32 << 10
    l2: int = 512 << 10

    @classmethod
    def of(cls, target: tvm.target.Target) -> Machine:
        """Read a target of kind ``llvm``.

        Vectors and registers follow from the instruction sets that LLVM names for the target:
        AVX-512 has 32 registers of 64 bytes, AVX 16 of 32, NEON 32 of 16, SSE 16 of 16.
        """
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
        return cls(width, registers, threads)

    def lanes(self, dtype: str) -> int:
        """Count the numbers of a dtype that one vector holds."""
        return max(1, self.vector_bytes * 8 // int(tvm.DataType(dtype).bits))
