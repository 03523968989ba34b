"""Properties of a processor that schedules depend on: vectors, caches, threads, dot products.

In every lane of a vector, a dot-product instruction multiplies a few neighbouring numbers of the
data with as many weights, and adds the sum to the lane's int32. The data are the same in all lanes
(a pixel's next inputs); the weights differ (one output channel each):

=============== ========================= =========== =================================
name            processors                lanes       products of a lane
=============== ========================= =========== =================================
``vpdpbusd``    AVX-512 VNNI, AVX-VNNI    16, 8       4: uint8 times int8
``sdot``        Arm with ``dotprod``      4           4: int8 times int8
``pmaddwd``     all x86-64                16, 8, 4    2: int16 times int16
=============== ========================= =========== =================================

None of these instructions saturates, so the sums are exact modulo 2^32. TVM's own ``dot_16x4_vnni``
passes operands to the first instruction that its LLVM rejects, and ``dot_16x4_avx512`` adds pairs
of products in int16, which saturates.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from ..errors import TargetError

__all__ = ["DOTS", "Dot", "Machine"]


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction.

    Attributes
    ----------
    llvm : str
        LLVM's name of the intrinsic.
    lanes, depth : int
        int32 sums per vector, and products per sum and instruction.
    data, weight : str
        Dtypes of the factors.
    adds : bool
        Whether the instruction accumulates; else a separate instruction adds its result.
    spare : int
        Registers that a step needs besides the sums, the weights and one vector of data: for
        products that are added afterwards, or because LLVM copies sums if all registers are used.
    """

    llvm: str
    lanes: int
    depth: int
    data: str
    weight: str
    adds: bool = True
    spare: int = 0

    @property
    def name(self) -> str:
        """The name of its TensorIntrin, which is registered on first use."""
        name = f"tvmlab.{self.llvm}"
        if TensorIntrin.get(name, allow_missing=True) is None:
            TensorIntrin.register(name, self.description(), self.implementation())
        return name

    def description(self) -> PrimFunc:
        """Return the semantics in TIR: ``c[i] += a[k] * b[i, k]``."""
        lanes, depth, data, weight = self.lanes, self.depth, self.data, self.weight

        @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
        def description(a: T.handle, b: T.handle, c: T.handle) -> None:
            A = T.match_buffer(a, (depth,), data, offset_factor=1)
            B = T.match_buffer(b, (lanes, depth), weight, offset_factor=1)
            C = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
            with T.sblock("root"):
                T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
                T.writes(C[0:lanes])
                for i, k in T.grid(lanes, depth):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")

        return description

    def added(self, sums: Any, data: Any, weights: Any) -> Any:
        """Return `sums` plus the dot products of two vectors."""
        number, dtype = T.llvm_lookup_intrinsic_id(self.llvm), f"int32x{self.lanes}"
        if self.adds:
            return T.call_llvm_pure_intrin(number, sums, data, weights, dtype=dtype)
        return sums + T.call_llvm_pure_intrin(number, data, weights, dtype=dtype)

    def implementation(self) -> PrimFunc:
        """Return the implementation with the instruction."""
        lanes, depth, data, weight = self.lanes, self.depth, self.data, self.weight
        few, many = f"{data}x{depth}", f"{data}x{lanes * depth}"
        sums, weights = f"int32x{lanes}", f"{weight}x{lanes * depth}"

        def product(given: Any, few_data: Any, many_weights: Any) -> Any:
            alike = T.broadcast(T.reinterpret(few_data, dtype="int32"), lanes)
            return self.added(given, T.reinterpret(alike, dtype=many), many_weights)

        @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
        def implementation(a: T.handle, b: T.handle, c: T.handle) -> None:
            A = T.match_buffer(a, (depth,), data, offset_factor=1)
            B = T.match_buffer(b, (lanes, depth), weight, offset_factor=1)
            C = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
            with T.sblock("root"):
                T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
                T.writes(C[0:lanes])
                C[T.ramp(0, 1, lanes)] = product(
                    C.vload([0], sums), A.vload([0], few), B.vload([0, 0], weights)
                )

        return implementation


_X86 = "llvm.x86."
# By the processor features that they need, the best first.
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
#: All supported dot products.
DOTS = (*_NARROW.values(), *_WIDE.values())


@dataclass(frozen=True)
class Machine:
    """The properties of a CPU that the rules use.

    Attributes
    ----------
    vector_bytes : int
        Width of a vector register.
    registers : int
        Vector registers that a tile can use: those of the instruction set, less one if a
        product needs its own.
    threads : int
        Threads of a parallel loop.
    l1, l2 : int
        Bytes of one core's data caches that a kernel can rely on.
    dot8, dot16 : Dot or None
        The instructions for products of 8 and of 16 bits.
    permutes_bytes : bool
        Whether there is AVX-512 VBMI, whose instructions take bytes from a table in registers.
    broadcasts : bool
        Whether an instruction of its own copies a number to all lanes, one per cycle on some
        processors. AVX-512 and NEON do it within a product.
    """

    vector_bytes: int
    registers: int
    threads: int
    l1: int = 32 << 10
    l2: int = 512 << 10
    dot8: Dot | None = None
    dot16: Dot | None = None
    permutes_bytes: bool = False
    broadcasts: bool = False

    @classmethod
    def of(cls, target: tvm.target.Target) -> Machine:
        """Read the properties of a target of kind ``llvm``.

        Vectors and registers follow from the instruction sets that LLVM names for the target:
        AVX-512 has 32 registers of 64 bytes, AVX 16 of 32, NEON 32 of 16, SSE 16 of 16. The
        dot products follow from them, too.

        Raises
        ------
        tvmlab.errors.TargetError
            `target` is not a target, for example the name of a processor.
        """
        if not isinstance(target, tvm.target.Target):
            raise TargetError(
                f"{target!r} is not a target",
                where="Machine.of",
                fix="pass tvm.target.Target({'kind': 'llvm', 'mcpu': 'x86-64-v3'})",
            )
        features = {str(f) for f in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
        if "avx512f" in features:
            width, registers = 64, 32
        elif "avx" in features:
            width, registers = 32, 16
        else:
            width, registers = 16, 32 if "neon" in features else 16
        if "fma" not in features and "neon" not in features:
            registers -= 1  # a product needs a register before it is added
        threads = int(target.attrs.get("num-cores", 0)) or os.cpu_count() or 1
        dot8, dot16 = _dots(features)
        bytes_ = "avx512vbmi" in features
        broadcasts = not features & {"avx512f", "neon"}
        return cls(
            width,
            registers,
            threads,
            dot8=dot8,
            dot16=dot16,
            permutes_bytes=bytes_,
            broadcasts=broadcasts,
        )

    def beside(self, dot: Dot | None) -> Machine:
        """Return the processor with only the registers that an instruction leaves to a tile."""
        return replace(self, registers=self.registers - (dot.spare if dot else 0))

    def lanes(self, dtype: str) -> int:
        """Return how many numbers of a dtype fit in a vector."""
        return max(1, self.vector_bytes * 8 // int(tvm.DataType(dtype).bits))


def _dots(features: set[str]) -> tuple[Dot | None, Dot | None]:
    """Find the 8-bit and the 16-bit dot products among a processor's features."""
    narrow, wide = (
        next((dot for feature, dot in known.items() if feature in features), None)
        for known in (_NARROW, _WIDE)
    )
    return narrow, wide
