"""The processors' dot products of narrow integers, and TensorIntrins for them.

One instruction multiplies, in every lane of a vector, a few neighbouring numbers of the data with
as many weights, and adds the sum to the lane's int32. The data are the same in all lanes (a pixel's
next inputs), the weights differ (one output channel each):

=============== ========================= =========== =================================
name            processors                lanes       products of a lane
=============== ========================= =========== =================================
``vpdpbusd``    AVX-512 VNNI, AVX-VNNI    16, 8       4: uint8 times int8
``sdot``        Arm with ``dotprod``      4           4: int8 times int8
``pmaddwd``     all x86-64                16, 8, 4    2: int16 times int16
=============== ========================= =========== =================================

None of them saturates: the sums are exact modulo 2^32. TVM's own ``dot_16x4_vnni`` gives the first
one operands that its LLVM refuses, and ``dot_16x4_avx512`` adds pairs of products in int16, which
saturates.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

__all__ = ["Dot"]


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction.

    Attributes
    ----------
    llvm : str
        LLVM's name of the intrinsic.
    lanes, depth : int
        int32 sums of a vector, and products that each of them takes at once.
    data, weight : str
        Dtypes of the factors.
    adds : bool
        Whether the instruction adds to the sums; else they are added after it.
    spare : int
        Registers that a step needs beside the sums, the weights and a number of the data: for
        products that are added after; or because LLVM copies the sums about where all are taken.
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
        """The name of its TensorIntrin, which is registered when it is first asked for."""
        name = f"tvmlab.{self.llvm}"
        if TensorIntrin.get(name, allow_missing=True) is None:
            TensorIntrin.register(name, self.description(), self.implementation())
        return name

    def description(self) -> PrimFunc:
        """Write what it computes: ``c[i] += a[k] * b[i, k]``."""
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

    def implementation(self) -> PrimFunc:
        """Write it with the instruction."""
        lanes, depth, data, weight = self.lanes, self.depth, self.data, self.weight
        few, many = f"{data}x{depth}", f"{data}x{lanes * depth}"
        sums, weights = f"int32x{lanes}", f"{weight}x{lanes * depth}"
        number = T.llvm_lookup_intrinsic_id(self.llvm)

        @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
        def adding(a: T.handle, b: T.handle, c: T.handle) -> None:
            A = T.match_buffer(a, (depth,), data, offset_factor=1)
            B = T.match_buffer(b, (lanes, depth), weight, offset_factor=1)
            C = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
            with T.sblock("root"):
                T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
                T.writes(C[0:lanes])
                C[T.ramp(0, 1, lanes)] = T.call_llvm_pure_intrin(
                    number,
                    C.vload([0], sums),
                    T.reinterpret(
                        T.broadcast(T.reinterpret(A.vload([0], few), dtype="int32"), lanes),
                        dtype=many,
                    ),
                    B.vload([0, 0], weights),
                    dtype=sums,
                )

        @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
        def apart(a: T.handle, b: T.handle, c: T.handle) -> None:
            A = T.match_buffer(a, (depth,), data, offset_factor=1)
            B = T.match_buffer(b, (lanes, depth), weight, offset_factor=1)
            C = T.match_buffer(c, (lanes,), "int32", offset_factor=1)
            with T.sblock("root"):
                T.reads(C[0:lanes], A[0:depth], B[0:lanes, 0:depth])
                T.writes(C[0:lanes])
                C[T.ramp(0, 1, lanes)] = C.vload([0], sums) + T.call_llvm_pure_intrin(
                    number,
                    T.reinterpret(
                        T.broadcast(T.reinterpret(A.vload([0], few), dtype="int32"), lanes),
                        dtype=many,
                    ),
                    B.vload([0, 0], weights),
                    dtype=sums,
                )

        return adding if self.adds else apart
